"""Envelopes, micro-batching and a built-in handler, through a real server and its workers."""

from __future__ import annotations

import base64
import io
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image
from tests.e2e.running import BIN, Answer, Running, running

MODEL = """
import torch
class Colours(torch.nn.Module):
    def forward(self, images):
        return images.mean(dim=(2, 3)) * 10
"""
CONFIG = """
micro_batching:
  micro_batch_size: 2
  parallelism: {preprocess: 1, inference: 2, postprocess: 3}
"""


def pack_classifier(server: Running) -> None:
    """Packs a tiny model for TorchServe's built-in handler of that name."""
    files = {
        "colours.py": MODEL,
        "index_to_name.json": json.dumps({"0": "red", "1": "green", "2": "blue"}),
    }
    for name, content in files.items():
        (server.root / name).write_text(content)
    command = [str(BIN / "archive-model"), "--model-name", "colours", "--version", "1.0"]
    command += ["--handler", "image_classifier", "--model-file", str(server.root / "colours.py")]
    command += ["--extra-files", str(server.root / "index_to_name.json")]
    command += ["--export-path", str(server.store)]
    subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    properties = "service_envelope=kserve\ndefault_workers_per_model=1"
    for made in running(tmp_path_factory.mktemp("compat"), properties=properties):
        pack_classifier(made)
        made.pack("squares", "micro_batching", CONFIG)
        yield made.start()


def ask(server: Running, path: str, *instances: Any) -> Answer:
    body = json.dumps({"instances": list(instances)})
    return server.ask("POST", path, body, {"Content-Type": "application/json"})


def test_instances_are_answered_in_parts(server: Running) -> None:
    answer = ask(server, "/predictions/squares", *({"data": n} for n in range(1, 6)))

    predictions = answer.json["predictions"]
    assert [1.0, 4.0, 9.0, 16.0, 25.0] == [each["square"] for each in predictions]
    assert [0, 0, 1, 1, 2] == [each["part"] for each in predictions]


def test_explanations_come_under_their_own_name(server: Running) -> None:
    answer = ask(server, "/explanations/squares", {"data": 3})

    assert {"explanations": [{"because": [[3.0]]}]} == answer.json


def test_a_request_without_instances_is_refused(server: Running) -> None:
    answer = server.ask("POST", "/predictions/squares", "{}", {"Content-Type": "application/json"})

    assert 400 == answer.status
    assert 'has no "instances"' in answer.message


def test_a_built_in_handler_serves_its_model(server: Running) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (300, 280), (0, 0, 255)).save(stream, "png")
    encoded = base64.b64encode(stream.getvalue()).decode()

    by_bytes = ask(server, "/predictions/colours", {"data": encoded})
    refused = ask(server, "/predictions/colours", {"data": "%%"})

    [labels] = by_bytes.json["predictions"]
    assert "blue" == next(iter(labels))
    assert 400 == refused.status
    assert "no base64 of an image" in refused.message
