"""Models named at start, with a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from marserve.frontend.status import UnixConnection

BIN = Path(sys.executable).parent
HANDLER = """\
def handle(data, context):
    return [context.manifest["model"]["modelVersion"]] * len(data or [])
"""


class Place:
    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("store", "tmp"):
            (path / name).mkdir()
        (path / "h.py").write_text(HANDLER)

    def pack(self, name: str, version: str, file: str) -> None:
        command = [str(BIN / "archive-model"), "--model-name", name, "--version", version]
        command += ["--handler", "h.py", "--export-path", "out", "--force"]
        subprocess.run(command, cwd=self.path, check=True, capture_output=True)
        (self.path / "out" / f"{name}.mar").rename(self.path / "store" / file)

    def run(self, *arguments: str) -> str:
        out = self.path / f"out-{arguments[0]}.txt"
        with out.open("w") as file:
            subprocess.run(
                [BIN / "serve", *arguments],
                cwd=self.path,
                env={**os.environ, "TMPDIR": str(self.path / "tmp")},
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=90,
                check=True,
            )
        return out.read_text()

    def start(self, text: str, *arguments: str) -> str:
        addresses = [
            f"{surface}_address=unix:{self.path}/{surface}.sock\n"
            for surface in ("inference", "management", "metrics")
        ]
        (self.path / "config.properties").write_text(
            "".join(addresses) + "enable_grpc=false\n" + text
        )
        return self.run("--start", "--model-store", "store", "--dt", *arguments)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("p"))
    (place.path / "out").mkdir()
    yield place
    place.run("--stop")


def test_everything_in_the_store(place: Place) -> None:
    place.pack("a", "1.0", "a.mar")
    place.pack("b", "1.0", "b.mar")
    (place.path / "store" / "broken.mar").write_text("no archive")
    (place.path / "store" / ".hidden.mar").write_text("no archive")
    out = place.start("", "--models", "ALL")

    assert "model a 1.0 is served with 1 workers" in out
    assert "model b 1.0 is served with 1 workers" in out
    assert "broken.mar is not served" in out
    assert "hidden" not in out
    assert "model       a 1.0: 1 of 1 workers ready" in place.run("--status")


def test_names_and_defaults(place: Place) -> None:
    place.pack("a", "1.0", "a.mar")
    defaults = {"x": {"1.0": {"minWorkers": 2, "maxWorkers": 2}}}
    place.start(f"models={json.dumps(defaults)}\n", "--models", "x=a.mar")

    assert "model       x 1.0: 2 of 2 workers ready" in place.run("--status")


def test_a_snapshot(place: Place) -> None:
    place.pack("a", "1.0", "a1.mar")
    place.pack("a", "2.0", "a2.mar")
    versions = {
        "1.0": {"marName": "a1.mar", "minWorkers": 1, "maxWorkers": 1},
        "2.0": {"marName": "a2.mar", "defaultVersion": True},
    }
    snapshot = {"name": "startup.cfg", "modelCount": 1, "models": {"a": versions}}
    place.start(f"load_models=absent.mar\nmodel_snapshot={json.dumps(snapshot)}\n")
    shown = place.run("--status")

    assert "a 1.0: 1 of 1" in shown
    assert "a 2.0: 1 of 1" in shown
    connection = UnixConnection(str(place.path / "inference.sock"))
    connection.request("POST", "/predictions/a", b"")
    assert b"2.0" == connection.getresponse().read()
    connection.close()
