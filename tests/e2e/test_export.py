"""A model in another mode, from the command that packs it to the answer over HTTP."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import tiny_models
from tests.e2e.running import BIN, Running, running

TASK = "sequence_classification"
TEXTS = ("a good film", "it was bad, and so long that i left the new york", "the")
LIMIT_S = 170


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("export")
    model = tiny_models.build("bert", TASK, root / "model")
    for server in running(root, properties="default_workers_per_model=1", models=None):
        pack(model, server.store, "plain")
        pack(model, server.store, "program", "--save-mode", "onnx")
        archive(
            "export",
            str(server.store / "program.mar"),
            *("--save-mode", "openvino", "--quantization", "int8_weight_only"),
            *("--output", str(server.store / "small.mar"), "--drop-weights"),
        )
        server.start()
        for name in ("plain", "program", "small"):
            path = f"/models?url={name}.mar&model_name={name}&initial_workers=1&synchronous=true"
            answer = server.manage("POST", path, timeout_s=LIMIT_S)
            assert answer.status == 200, answer.text
        yield server


def pack(model: Path, store: Path, name: str, *flags: str) -> None:
    given = ("--from-pretrained", str(model), "--task", TASK, "--model-name", name)
    archive(*given, "--export-path", str(store), *flags)


def archive(*arguments: str) -> None:
    command = [str(BIN / "archive-model"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(600)
def test_a_program_answers_as_the_weights_do(served: Running) -> None:
    for text in TEXTS:
        assert served.predict("plain", text).text == served.predict("program", text).text
        assert served.predict("small", text).status == 200


@pytest.mark.timeout(600)
def test_it_is_explained_by_the_weights_beside_it(served: Running) -> None:
    plain = {"Content-Type": "text/plain"}
    found = {
        name: served.ask("POST", f"/explanations/{name}", TEXTS[0], plain, timeout_s=LIMIT_S)
        for name in ("plain", "program", "small")
    }

    assert found["plain"].json == found["program"].json
    assert found["small"].status == 501
    assert "weights" in found["small"].message


@pytest.mark.timeout(600)
def test_more_workers_share_the_cores(served: Running) -> None:
    before = served.predict("program", TEXTS[1]).text

    path = "/models/program?min_worker=2&synchronous=true"
    assert served.manage("PUT", path, timeout_s=LIMIT_S).status in (200, 202)

    assert len(served.worker_pids("program")) == 2
    assert {before} == {answer.text for answer in served.together("program", [TEXTS[1]] * 6)}
