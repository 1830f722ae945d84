from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_packed_archive_is_shown(model: Path, archive_model: Run) -> None:
    args = ["--model-name", "m", "--version", "1.0", "--handler", model / "handler.py"]
    packed = archive_model(*args, "--config-file", model / "model-config.yaml")
    shown = archive_model("inspect", "m.mar")
    plain = json.loads(archive_model("inspect", "m.mar", "--json").stdout)

    assert packed.returncode == 0
    assert packed.stdout == packed.stderr == ""
    assert "handler: handler.py (python)" in shown.stdout
    assert "maxWorkers: 2" in shown.stdout
    assert plain["manifest"]["model"]["modelVersion"] == "1.0"
    assert plain["config"] == {"minWorkers": 1, "maxWorkers": 2}
    files = {file["name"]: file for file in plain["files"]}
    assert set(files) == {"handler.py", "model-config.yaml", "MAR-INF/MANIFEST.json"}
    assert len(files["handler.py"]["sha256"]) == 64
    assert files["handler.py"]["size_bytes"] == (model / "handler.py").stat().st_size


@pytest.mark.parametrize("archive_format", ["default", "tgz", "no-archive"])
def test_every_format_is_shown_and_verified(
    model: Path, archive_model: Run, archive_format: str
) -> None:
    args = ["--model-name", "m", "-v", "1", "--handler", model / "handler.py"]
    archive_model(*args, "--archive-format", archive_format)
    (path,) = Path().iterdir()

    assert archive_model("inspect", path).returncode == 0
    assert archive_model("verify", path).stdout == f"{path}: sound\n"


def test_each_problem_of_an_archive_is_told(model: Path, archive_model: Run) -> None:
    files = [("handler.py", "def hendle(): ..."), ("more", "1")]
    manifest = {
        "runtime": "python",
        "model": {
            "modelName": "m",
            "modelVersion": "1",
            "handler": "handler.py",
            "modelFile": "net.py",
        },
        "marserve": {"sha256": {"handler.py": "00"}},
    }
    with zipfile.ZipFile("m.mar", "w") as archive:
        for name, text in [*files, ("MAR-INF/MANIFEST.json", json.dumps(manifest))]:
            archive.writestr(name, text)
    result = archive_model("verify", "m.mar")

    assert result.returncode == 1
    assert [line.split(":")[1].strip() for line in result.stderr.splitlines()] == [
        "handler.py",
        "more",
        "modelFile",
        "handler.py",
    ]
    assert "sha256 is" in result.stderr
    assert "expected a function handle(data, context)" in result.stderr


def test_a_directory_without_manifest_or_with_changed_files_is_not_sound(
    model: Path, archive_model: Run
) -> None:
    assert "MANIFEST.json: is not in the archive" in archive_model("verify", model).stderr
    args = ["--model-name", "m", "-v", "1", "--handler", model / "handler.py"]
    archive_model(*args, "--archive-format", "no-archive")
    Path("m/handler.py").write_text("def handle(data, context): ...")
    result = archive_model("verify", "m")

    assert result.returncode == 1
    assert "handler.py: sha256 is" in result.stderr


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_cannot_be_read_is_one_clear_line(
    model: Path, archive_model: Run, command: str
) -> None:
    Path("x.mar").write_text("no zip")
    for name in ("x.mar", "gone.mar"):
        result = archive_model(command, name)

        assert result.returncode == 1
        assert result.stderr.startswith(f"error: {name}: ")
        assert result.stderr.count("\n") == 1
    assert archive_model(command).returncode == 2


def test_checks_can_be_switched_off(model: Path, archive_model: Run) -> None:
    (model / "handler.py").write_text("def handle(")
    args = ["--model-name", "m", "-v", "1", "--handler", model / "handler.py"]
    checked = archive_model(*args)

    assert checked.returncode == 1
    assert (
        checked.stderr
        == "error: handler.py: line 1: cannot be parsed as Python: '(' was never closed\n"
    )
    assert archive_model(*args, "--no-check").returncode == 0
    assert archive_model("verify", "m.mar").returncode == 1


def test_a_slip_in_the_config_is_a_warning(model: Path, archive_model: Run) -> None:
    (model / "model-config.yaml").write_text("batch_size: 2")
    args = ["--model-name", "m", "-v", "1", "--handler", model / "handler.py"]
    result = archive_model(*args, "-c", model / "model-config.yaml")

    assert result.returncode == 0
    assert result.stderr == (
        "warning: model-config.yaml: $.batch_size: unknown key, did you mean batchSize?\n"
    )


def test_progress_is_shown_on_a_terminal_alone(model: Path) -> None:
    (model / "big.pt").write_bytes(os.urandom(30_000_000))
    command = [
        *(f"{Path(sys.executable).parent}/archive-model", "--model-name", "m", "-v", "1", "-f"),
        *("--handler", "base_handler", "--serialized-file", f"{model}/big.pt"),
    ]
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))  # a new one has no columns to show anything in
    process = subprocess.Popen(command, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        shown += piece
    os.close(ours)

    assert process.wait(30) == 0
    assert b"B/s" in shown
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""
