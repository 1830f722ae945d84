"""Triton's ONNX and PyTorch backends, the vision transformer of its tutorial, and exports."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client
from tests.e2e.running import BIN, Running, pack, running
from tests.triton_models import SIDE, add_programs, add_vit
from tritonclient.utils import InferenceServerException

ROWS = np.array([[1, 2], [3, 4]], np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for server in running(tmp_path_factory.mktemp("programs"), models=None):
        add_programs(server.store)
        add_vit(server.store)
        archive = pack(server.root / "archives", "square", "rejecting", "batchSize: 4\n")
        command = [str(BIN / "serve"), "export", "--triton", str(archive), str(server.store)]
        subprocess.run(command, check=True, capture_output=True)
        yield server.start()


@pytest.fixture(scope="module")
def triton(server: Running) -> Iterator[client.InferenceServerClient]:
    address = f"127.0.0.1:{server.ports['inference']}"
    with client.InferenceServerClient(
        address, concurrency=8, network_timeout=240, connection_timeout=240
    ) as connected:
        # One after the other: each starts a process that imports PyTorch.
        for name in ("onnx_sum", "script_sum", "exported_sum", "square", "python_vit"):
            connected.load_model(name)
        connected.load_model("ensemble_vit")  # and its steps with it
        yield connected


def tensor(name: str, array: Any, word: str = "FP32") -> client.InferInput:
    made = client.InferInput(name, list(array.shape), word)
    made.set_data_from_numpy(array)
    return made


def test_an_onnx_model_needs_no_configuration(triton: client.InferenceServerClient) -> None:
    config = triton.get_model_config("onnx_sum")
    answer = triton.infer("onnx_sum", [tensor("A", ROWS), tensor("B", ROWS)])

    assert (4, ["3"]) == (
        config["max_batch_size"],
        triton.get_model_metadata("onnx_sum")["versions"],
    )
    assert np.array_equal(answer.as_numpy("Y"), ROWS * 4)


@pytest.mark.parametrize("model", ["script_sum", "exported_sum"])
def test_a_pytorch_model_by_the_places_in_its_names(
    triton: client.InferenceServerClient, model: str
) -> None:
    answer = triton.infer(model, [tensor("INPUT__1", ROWS), tensor("INPUT__0", 2 * ROWS)])

    assert np.array_equal(answer.as_numpy("OUTPUT__0"), ROWS * 4)
    assert np.array_equal(answer.as_numpy("OUTPUT__1"), ROWS)


def test_requests_that_share_a_batch_get_their_own_rows(
    triton: client.InferenceServerClient,
) -> None:
    inputs = [np.full((1 + number % 3, 2), number, np.float32) for number in range(12)]

    asked = [
        triton.async_infer("script_sum", [tensor("INPUT__0", each), tensor("INPUT__1", each)])
        for each in inputs
    ]

    for each, answer in zip(inputs, asked, strict=True):
        assert np.array_equal(answer.get_result().as_numpy("OUTPUT__0"), each * 3)


def test_both_ways_to_serve_the_vision_transformer_agree(
    triton: client.InferenceServerClient,
) -> None:
    images = np.random.default_rng(3).integers(0, 255, (2, 48, 40, 3)).astype(np.uint8)

    answers = {
        model: triton.infer(model, [tensor("image", images, "UINT8")]).as_numpy("last_hidden_state")
        for model in ("python_vit", "ensemble_vit")
    }

    patches = (SIDE // 16) ** 2 + 1
    assert answers["python_vit"].shape == (2, patches, 16)
    assert np.abs(answers["python_vit"] - answers["ensemble_vit"]).max() < 1e-4


def test_an_exported_archive_answers_as_the_archive_does(
    triton: client.InferenceServerClient,
) -> None:
    def square(*texts: bytes) -> Any:
        column = np.array([[text] for text in texts], object)
        return triton.infer("square", [tensor("data", column, "BYTES")]).as_numpy("output")

    assert [[b"4.0"], [b"2.25"]] == square(b"2", b"1.5").tolist()
    with pytest.raises(InferenceServerException) as caught:
        square(b"2", b"two")
    assert caught.value.status() == "500"
    assert "could not convert string to float" in str(caught.value.message())
