"""Workers are replaced when they have done enough, and share the cores; no caller notices."""

from __future__ import annotations

import os

import pytest
from tests.e2e.running import Answer, Running

ONE = "minWorkers: 1\nmaxWorkers: 1\n"


def test_worn_workers_are_replaced_without_a_failed_request(server: Running) -> None:
    server.pack("leaking", "leaking", ONE + "maxRequestsPerWorker: 50\n")
    server.start()

    answers: list[Answer] = []
    while len({a.text for a in answers}) < 4:
        answers += server.together("leaking", ["x"] * 8)

    assert {a.status for a in answers} == {200}
    server.until(lambda: len(server.worker_pids("leaking")) == 1, "too many workers")


def test_worker_that_has_grown_is_replaced(server: Running) -> None:
    server.pack("leaking", "leaking", ONE + "maxWorkerMemoryMB: 150\n")
    server.start()
    (pid,) = server.worker_pids("leaking")

    answers = server.together("leaking", ["leak"] * 12)
    server.until(lambda: server.worker_pids("leaking") not in ([], [pid]), "it stays")
    server.until(lambda: pid not in server.worker_pids("leaking"), "it stays")

    assert {a.status for a in answers} == {200}
    server.wait_for("is replaced at ")
    assert server.predict("leaking", "x").status == 200


def test_memory_limit_below_a_fresh_worker_is_reported_and_ignored(server: Running) -> None:
    server.pack("leaking", "leaking", ONE + "maxWorkerMemoryMB: 1\n")
    server.start()

    server.wait_for("is less than the ")

    server.until(lambda: len(server.worker_pids("leaking")) == 1, "too many workers")
    assert server.predict("leaking", "x").status == 200


def test_worker_stays_if_its_replacement_cannot_load(server: Running) -> None:
    server.pack("once", "loads_once", ONE + "maxRequestsPerWorker: 1\n")
    server.start()
    (pid,) = server.worker_pids("once")

    assert server.predict("once", "x").text == "here"
    server.wait_for("no replacement for a worn worker")

    assert server.predict("once", "x").text == "here"
    assert server.worker_pids("once") == [pid]
    assert server.ask("GET", "/ping").status == 200


@pytest.mark.skipif("OMP_NUM_THREADS" in os.environ, reason="it fixes the number of threads")
def test_threads_follow_the_number_of_workers(server: Running) -> None:
    cores = os.cpu_count() or 1
    server.pack("threads", "threads", ONE)
    server.start()
    alone = server.predict("threads", "x").text

    server.manage("PUT", "/models/threads?min_worker=2&synchronous=true")
    both = {server.predict("threads", "x").text for _ in range(10)}
    server.manage("PUT", "/models/threads?min_worker=1&synchronous=true")
    again = server.predict("threads", "x").text

    assert (alone, again) == (str(cores), str(cores))
    assert both == {str(max(1, cores // 2))}
