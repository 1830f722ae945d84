"""Requests with priorities: who waits, who is served first, who gives way."""

from __future__ import annotations

import os
import signal
import threading

from tests.e2e.chaos import Chaos
from tests.e2e.running import Answer, Running


class Waiting:
    """Requests that are sent one after the other while the only worker is stopped."""

    def __init__(self, chaos: Chaos) -> None:
        self.chaos = chaos
        self.answers: dict[str, Answer] = {}
        self._threads: list[threading.Thread] = []

    def send(self, token: str, level: int, pending: int) -> None:
        """Sends a request and waits until so many are in the queue."""

        def ask() -> None:
            headers = {"X-Marserve-Priority": str(level)}
            self.answers[token] = self.chaos.server.predict("chaos", token, headers=headers)

        thread = threading.Thread(target=ask)
        thread.start()
        self._threads.append(thread)
        self.chaos.server.until(lambda: self._pending() == pending, f"not {pending} waiting")

    def join(self) -> list[str]:
        """Returns the tokens in the order in which they ran."""
        for thread in self._threads:
            thread.join()
        return [token for _, token in self.chaos.batches()]

    def _pending(self) -> int:
        return int(self.chaos.server.describe("chaos")["jobQueueStatus"]["pendingRequests"])


def readiness(server: Running) -> int:
    return server.ask("GET", "/health/ready").status


def test_higher_priority_runs_first_and_makes_others_give_way(server: Running) -> None:
    chaos = Chaos(server, "priorityLevels: 3\njobQueueSize: 3\n").start(1)
    (pid,) = chaos.serving(1)
    os.kill(pid, signal.SIGSTOP)
    waiting = Waiting(chaos)
    waiting.send("busy", 0, pending=0)
    server.until(lambda: readiness(server) == 503, "the worker does not stop")
    for token, level, pending in (("low", 3, 1), ("usual", 2, 2), ("high", 1, 3)):
        waiting.send(token, level, pending)
    refused = server.predict("chaos", "as-low", headers={"X-Marserve-Priority": "3"})
    waiting.send("urgent", 1, pending=3)
    server.until(lambda: "low" in waiting.answers, "nobody gives way")
    os.kill(pid, signal.SIGCONT)

    assert waiting.join() == ["busy", "high", "urgent", "usual"]
    for answer in (refused, waiting.answers["low"]):
        assert answer.status == 503
        assert "no place in its queue" in answer.message
        assert answer.headers["retry-after"] == "1"
    served = {"busy", "high", "urgent", "usual"}
    assert {t for t, answer in waiting.answers.items() if answer.status == 200} == served


def test_what_is_no_priority_is_refused(server: Running) -> None:
    Chaos(server, "priorityLevels: 3\n").start(1)
    answer = server.predict("chaos", "a", headers={"X-Marserve-Priority": "high"})

    assert answer.status == 400
    assert "1 (first) to 3" in answer.message
