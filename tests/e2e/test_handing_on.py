"""A version that loses its workers hands what waits on to the version that took its place."""

from __future__ import annotations

import os
import signal
import threading

from tests.e2e.chaos import Chaos
from tests.e2e.running import Answer, Running


def waiting(server: Running, path: str, pending: int, answers: list[Answer]) -> threading.Thread:
    """Sends a request, and waits until so many are in the queue of version 1.0."""
    thread = threading.Thread(
        target=lambda: answers.append(server.ask("POST", path, f"t{pending}"))
    )
    thread.start()

    def seen() -> bool:
        described = server.manage("GET", "/models/chaos/1.0").json[0]
        return bool(described["jobQueueStatus"]["pendingRequests"] == pending)

    server.until(seen, f"not {pending} waiting")
    return thread


def test_requests_of_a_version_that_is_scaled_to_none(server: Running) -> None:
    chaos = Chaos(server).start(1)
    (pid,) = chaos.serving(1)
    second = server.pack("chaos2", "chaos", chaos.config, version="2.0")
    register = f"/models?url={second.name}&model_name=chaos&initial_workers=1&synchronous=true"
    assert server.manage("POST", register).status == 200
    os.kill(pid, signal.SIGSTOP)
    answers: list[list[Answer]] = [[], [], []]
    paths = ("/predictions/chaos", "/predictions/chaos", "/predictions/chaos/1.0")
    threads = [waiting(server, path, n, answers[n]) for n, path in enumerate(paths)]

    assert server.manage("PUT", "/models/chaos/2.0/set-default").status == 200
    server.manage("PUT", "/models/chaos/1.0?min_worker=0&max_worker=0")
    for thread in threads[1:]:
        thread.join()
    os.kill(pid, signal.SIGCONT)
    threads[0].join()

    (running,), (moved,), (pinned,) = answers
    assert (running.status, running.text.split()) == (200, ["t0", "1.0"])
    assert (moved.status, moved.text.split()) == (200, ["t1", "2.0"])
    assert (pinned.status, pinned.json["type"]) == (503, "ServiceUnavailableException")


def test_default_version_without_a_worker_is_told(server: Running) -> None:
    chaos = Chaos(server).start(1)
    second = server.pack("chaos2", "chaos", chaos.config, version="2.0")
    server.manage("POST", f"/models?url={second.name}&model_name=chaos&initial_workers=0")

    answer = server.manage("PUT", "/models/chaos/2.0/set-default")

    assert answer.status == 200
    assert "It has no worker that is ready" in answer.json["status"]
