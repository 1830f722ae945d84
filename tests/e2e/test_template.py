"""Workers forked from a template process: what they share, and what they do not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.e2e.running import Running

ONE = "minWorkers: 1\nmaxWorkers: 1\n"


def titles(server: Running, text: str) -> list[int]:
    """Process ids of those of the server's processes whose title holds a text."""
    assert server.process is not None
    mark = f"LOG_LOCATION={server.root / 'logs'}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if text in command and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended meanwhile
    return found


def private_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def test_workers_have_titles_and_share_their_imports(server: Running) -> None:
    server.pack("base", "base_style", "minWorkers: 3\nmaxWorkers: 3\n")
    server.start()

    workers = titles(server, "marserve.worker W-")

    assert sorted(server.worker_pids("base")) == sorted(workers)
    assert len(titles(server, "marserve.template")) == 1
    assert all(private_kib(pid) < 60 << 10 for pid in workers)


def test_workers_outlive_their_template_and_get_a_new_one(server: Running) -> None:
    server.pack("exiting", "exiting", ONE)
    server.start()
    (pid,) = server.worker_pids("exiting")
    (template,) = titles(server, "marserve.template")

    os.kill(template, signal.SIGKILL)
    server.until(lambda: not titles(server, "marserve.template"), "the template lives")

    assert server.predict("exiting", "pid").text == str(pid)
    os.kill(pid, signal.SIGKILL)
    assert server.predict("exiting", "fine").text == "alive"
    assert server.worker_pids("exiting") != [pid]
    assert len(titles(server, "marserve.template")) == 1


def test_handler_with_threads_is_spawned(server: Running) -> None:
    server.pack("threaded", "threaded_import", "minWorkers: 2\nmaxWorkers: 2\n")
    server.start()

    assert server.predict("threaded").text == "alive"
    server.wait_for("workers are spawned, not forked")
    assert titles(server, "marserve.template") == []
    assert len(titles(server, "-m marserve.worker")) == 2


def test_template_ends_with_its_model(server: Running) -> None:
    server.pack("echo", "echo", ONE)
    server.start()
    assert len(titles(server, "marserve.template")) == 1

    assert server.manage("DELETE", "/models/echo").status == 200

    server.until(lambda: not titles(server, "marserve.template"), "the template lives")
    assert titles(server, "marserve.worker") == []
