from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marserve.archiver.errors import ConfigError
from marserve.frontend.pidfile import SERVER_MODULE, AlreadyRunning, PidFile


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_file_holds_the_process_id(tmp_path: Path) -> None:
    file = PidFile(tmp_path)
    file.claim()

    assert str(os.getpid()) == (tmp_path / ".model_server.pid").read_text()
    file.release()
    assert not file.path.exists()


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "99999999999", "1 2", "é"])
def test_nonsense_is_no_server(tmp_path: Path, text: str) -> None:
    file = PidFile(tmp_path)
    file.path.write_text(text)

    assert file.server() is None
    assert not file.is_orphan()
    file.claim()
    assert os.getpid() == file.read()


def test_a_dead_process_leaves_an_orphan(tmp_path: Path) -> None:
    file = PidFile(tmp_path)
    file.path.write_text(str(dead_pid()))

    assert file.is_orphan()
    assert file.server() is None
    file.release()
    assert file.path.exists()
    file.claim()


def test_another_program_is_no_server(tmp_path: Path) -> None:
    file = PidFile(tmp_path)
    file.path.write_text(str(os.getppid()))

    assert not file.is_orphan()
    assert file.server() is None


def test_a_running_server_is_left_alone(tmp_path: Path) -> None:
    file = PidFile(tmp_path)
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, SERVER_MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before that, it may not have its arguments yet
        file.path.write_text(str(process.pid))

        running = file.server()
        assert running is not None
        assert process.pid == running.pid
        with pytest.raises(AlreadyRunning, match=f"already running .pid {process.pid}"):
            file.claim()
        process.communicate()
    assert file.server() is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    file = PidFile(tmp_path)
    file.path.symlink_to(target)
    file.claim()

    assert "precious" == target.read_text()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.model_server\.pid: cannot be written.*TMPDIR"):
        PidFile(tmp_path / "absent").claim()
