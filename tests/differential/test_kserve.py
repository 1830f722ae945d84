"""The client of KServe's SDK and our server: both protocols, over HTTP and gRPC."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.differential.environments import cached, reason
from tests.e2e.running import running

SCRIPT = Path(__file__).with_name("kserve_asks.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    try:
        home = cached("kserve", "kserve==0.15.2")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(reason("kserve 0.15.2", error))
    for server in running(tmp_path_factory.mktemp("kserve")):
        server.pack("tensors", "tensors")
        server.pack("echo", "echo")
        server.start()
        addresses = f"http://127.0.0.1:{server.ports['inference']}"
        command = [str(home / "bin/python"), str(SCRIPT), addresses]
        command.append(f"127.0.0.1:{server.grpc_ports['inference']}")
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 0, run.stderr[-3000:]
        answers: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return answers
    raise AssertionError("there is a server")


@pytest.mark.parametrize("surface", ["http", "grpc"])
def test_its_view_of_the_server_and_the_model(found: dict[str, Any], surface: str) -> None:
    answers = found[surface]

    assert [answers[each] for each in ("live", "ready", "model")] == [True, True, True]


@pytest.mark.parametrize("surface", ["http", "grpc"])
def test_its_tensors_come_back(found: dict[str, Any], surface: str) -> None:
    answer = found[surface]["infer"]

    assert (answer["id"], answer["model"]) == ("mine", "tensors")
    assert answer["outputs"]["n"][:2] == ["FP32", [1, 3]]
    assert answer["outputs"]["shapes"][0] == "BYTES"


def test_an_error_is_told(found: dict[str, Any]) -> None:
    assert "absent" in found["http"]["unknown"]


def test_protocol_v1(found: dict[str, Any]) -> None:
    asked = {"instances": [{"data": "one"}, {"data": "two"}]}

    assert found["http"]["v1_ready"] is True
    assert found["http"]["predict"] == asked
    assert found["http"]["explain"] == asked
