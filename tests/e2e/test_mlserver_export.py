"""An archive written as an MLServer model is served again, with the same answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.running import BIN, Running, running

BODIES = ["str", "dict", "list", "number"]


def exported(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "serve"), "export", "--mlserver", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for server in running(tmp_path_factory.mktemp("exported")):
        archive = server.pack("hosting", "returning", "batchSize: 4\nmaxBatchDelay: 50\n")
        done = exported(str(archive), str(server.store / "repository"))
        assert done.returncode == 0, done.stderr
        settings = server.store / "repository" / "hosting" / "model-settings.json"
        content = json.loads(settings.read_text())
        settings.write_text(json.dumps({**content, "name": "hosted"}))
        yield server.start()


def hosted(server: Running, bodies: list[str]) -> Any:
    tensor = {"name": "data", "datatype": "BYTES", "shape": [len(bodies)], "data": bodies}
    return server.ask("POST", "/v2/models/hosted/infer", json.dumps({"inputs": [tensor]}))


def test_the_answers_are_the_archive_s(server: Running) -> None:
    own = [server.predict("hosting", body).text for body in BODIES]
    answer = hosted(server, BODIES)

    assert answer.status == 200, answer.text
    [output] = answer.json["outputs"]
    assert output["data"] == own
    assert output["shape"] == [len(BODIES), 1]


def test_a_second_export_leaves_the_first_alone(server: Running, tmp_path: Path) -> None:
    archive = str(server.store / "hosting.mar")

    assert exported(archive, str(tmp_path)).returncode == 0
    again = exported(archive, str(tmp_path))
    assert again.returncode == 1
    assert "is there already" in again.stderr
