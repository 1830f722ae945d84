"""TorchServe's command names, for images and scripts that call them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.e2e.running import BIN, SERVICES, free_port

NAMES = ["torch-model-archiver", "torch-workflow-archiver", "torchserve"]


def install(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "serve"), "install-names", str(directory)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.fixture
def names(tmp_path: Path) -> Path:
    done = install(tmp_path / "a folder" / "bin")
    assert 0 == done.returncode, done.stderr
    return tmp_path / "a folder" / "bin"


def test_a_script_for_torchserve_runs_as_it_is(names: Path, tmp_path: Path) -> None:
    ports = {kind: free_port() for kind in ("inference", "management", "metrics")}
    lines = [f"{kind}_address=http://127.0.0.1:{port}" for kind, port in ports.items()]
    lines += [f"grpc_{kind}_port={free_port()}" for kind in ("inference", "management")]
    (tmp_path / "config.properties").write_text("\n".join(lines) + "\n")
    (tmp_path / "model_store").mkdir()
    (tmp_path / "tmp").mkdir()
    script = f"""\
set -e
torch-model-archiver --model-name echo --version 1.0 --handler {SERVICES}/echo.py \\
    --export-path model_store -f
torchserve --start --ncs --model-store model_store --models echo=echo.mar \\
    --ts-config config.properties --disable-token-auth > console.txt 2>&1
curl -s -X POST http://127.0.0.1:{ports["inference"]}/predictions/echo \\
    -H 'Content-Type: text/plain' -d hello > answer.txt
torchserve --stop >> console.txt
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    environment["PATH"] = f"{names}:{environment['PATH']}"
    try:
        subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, check=True, timeout=90
        )
    finally:
        pid_file = tmp_path / "tmp" / ".model_server.pid"
        if pid_file.exists():
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
    console = (tmp_path / "console.txt").read_text()

    assert "hello" in (tmp_path / "answer.txt").read_text()
    assert "Model server started." in console


def test_the_version_is_told_in_torchserves_words(names: Path) -> None:
    done = subprocess.run([names / "torchserve", "--version"], capture_output=True, check=True)

    assert done.stdout.startswith(b"TorchServe Version is 0.12.0")


def test_all_names_are_there_and_may_be_written_again(names: Path) -> None:
    assert 0 == install(names).returncode
    assert NAMES == sorted(path.name for path in names.iterdir())
    for name in NAMES:
        done = subprocess.run([names / name, "--help"], capture_output=True, timeout=60)
        assert 0 == done.returncode


def test_an_installed_torchserve_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "torchserve"
    theirs.write_text("#!/bin/sh\necho theirs\n")
    done = install(tmp_path)

    assert 1 == done.returncode
    assert "is a torchserve already that is not ours" in done.stderr
    assert ["torchserve"] == [path.name for path in tmp_path.iterdir()]
    assert "echo theirs" in theirs.read_text()
