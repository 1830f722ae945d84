"""How a server with work in hand stops, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

from tests.e2e.running import BIN, Answer, Running

from marserve.frontend.pidfile import has_ended

WORKER = "minWorkers: 1\nmaxWorkers: 1\n"


def busy(server: Running, seconds: str) -> tuple[threading.Thread, list[Answer | OSError]]:
    """Sends a request that takes its time; returns once it runs."""
    answers: list[Answer | OSError] = []

    def ask() -> None:
        try:
            answers.append(server.predict("slow", seconds))
        except OSError as error:
            answers.append(error)

    caller = threading.Thread(target=ask)
    caller.start()
    server.until(lambda: "batch of 1 begins" in server.console, "the worker is not busy")
    return caller, answers


def test_while_it_drains_it_is_alive_but_not_ready(server: Running) -> None:
    server.pack("slow", "slow", WORKER)
    server.start()
    caller, answers = busy(server, "3")
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("stopping: accepted requests have 30 s")

    ready = server.ask("GET", "/health/ready")
    refused = server.predict("slow", "0")
    code = server.stop(0)  # signal 0 is none: the server is stopping already
    caller.join()

    assert (503, True) == (ready.status, ready.json["draining"])
    assert (503, "1") == (refused.status, refused.headers["retry-after"])
    (answer,) = answers
    assert isinstance(answer, Answer)
    assert (0, "slept 3") == (code, answer.text)


def test_the_drain_has_an_end(server: Running) -> None:
    server.properties = "drain_timeout=0.5"
    server.pack("slow", "slow", WORKER)
    server.start()
    caller, answers = busy(server, "60")
    (pid,) = server.worker_pids("slow")
    began = time.monotonic()
    code = server.stop()
    took_s = time.monotonic() - began
    caller.join()

    assert 0 == code
    assert 0.5 <= took_s < 25
    assert "requests were still running 0.5 s after" in server.console
    (answer,) = answers
    assert isinstance(answer, Answer)
    assert 503 == answer.status
    assert has_ended(pid)


def test_a_second_signal_ends_it_at_once(server: Running) -> None:
    server.pack("slow", "slow", WORKER)
    server.start()
    caller, _ = busy(server, "60")
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("stopping: accepted requests")
    began = time.monotonic()
    code = server.stop(signal.SIGTERM)
    caller.join()

    assert 128 + signal.SIGTERM == code
    assert time.monotonic() - began < 5
    assert [] == os.listdir(server.root / "tmp")


def test_a_console_that_nobody_reads_stops_nothing(server: Running) -> None:
    server.pack("slow", "slow", WORKER)
    server.start()
    server.stop()
    command = [str(BIN / "serve"), "--foreground", "--model-store", str(server.store)]
    command += ["--models", "all", "--disable-token-auth"]
    environ = {**os.environ, "TMPDIR": str(server.root / "tmp")}
    with subprocess.Popen(command, cwd=server.root, env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert any(b"Model server started." in line for line in process.stdout)
        # Each request prints two lines of 100 bytes or so; a pipe holds 64 KiB.
        answers = [server.predict("slow", "0").status for _ in range(500)]
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)

    assert [200] * 500 == answers
    assert 0 == code


def test_stop_from_the_command_line_waits_for_the_last_answer(server: Running) -> None:
    server.pack("slow", "slow", WORKER)
    server.start()
    caller, answers = busy(server, "1")
    done = subprocess.run(
        [str(BIN / "serve"), "--stop"],
        env={**os.environ, "TMPDIR": str(server.root / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    caller.join()

    assert "marserve has stopped.\n" == done.stdout
    (answer,) = answers
    assert isinstance(answer, Answer)
    assert "slept 1" == answer.text
