"""Workers come and go with the load, down to none, and come back with the next request."""

from __future__ import annotations

import threading

from tests.e2e.running import Running

SLEEPY = "minWorkers: 1\nmaxWorkers: 1\nidleTimeoutSec: 1\n"


def keep_busy(server: Running, name: str, clients: int) -> tuple[threading.Event, list[int]]:
    stop, statuses = threading.Event(), []

    def client() -> None:
        while not stop.is_set():
            statuses.append(server.predict(name, "x").status)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    return stop, statuses


def test_workers_follow_the_load(server: Running) -> None:
    server.pack("paced", "paced", "minWorkers: 1\nmaxWorkers: 3\nscaleDownIdleSec: 1\n")
    server.start()
    assert len(server.worker_pids("paced")) == 1

    stop, statuses = keep_busy(server, "paced", 8)
    server.until(lambda: len(server.worker_pids("paced")) == 3, "no three workers")
    stop.set()
    server.until(lambda: len(server.worker_pids("paced")) == 1, "workers stay")

    assert set(statuses) == {200}
    described = server.describe("paced")
    assert (described["minWorkers"], described["maxWorkers"]) == (1, 3)


def test_fixed_number_stays_fixed(server: Running) -> None:
    server.pack("paced", "paced", "minWorkers: 1\nmaxWorkers: 3\nscaleDownIdleSec: 1\n")
    server.start()

    answer = server.manage("PUT", "/models/paced?min_worker=2&synchronous=true")
    stop, statuses = keep_busy(server, "paced", 8)
    server.until(lambda: len(statuses) > 20, "no answers")
    stop.set()

    assert answer.status == 200
    assert len(server.worker_pids("paced")) == 2


def test_idle_model_sleeps_and_the_next_request_wakes_it(server: Running) -> None:
    server.pack("paced", "paced", SLEEPY)
    server.start()

    server.until(lambda: server.describe("paced").get("dormant"), "it stays awake")
    asleep = server.describe("paced")
    ping, ready = server.ask("GET", "/ping"), server.ask("GET", "/health/ready")
    kserve = server.manage("GET", "/v1/models/paced").json
    answers = server.together("paced", ["x"] * 4)

    assert asleep["workers"] == []
    assert (ping.status, ready.status, kserve["ready"]) == (200, 200, True)
    assert [a.status for a in answers] == [200] * 4
    assert "dormant" not in server.describe("paced")
    server.until(lambda: server.describe("paced").get("dormant"), "it does not sleep again")


def test_time_limit_counts_while_a_model_wakes(server: Running) -> None:
    server.pack("paced", "paced", SLEEPY)
    server.start()
    server.until(lambda: server.describe("paced").get("dormant"), "it stays awake")

    answer = server.predict("paced", "x", headers={"x-request-timeout": "0.001"})

    assert answer.status == 504
    assert server.predict("paced", "x").status == 200


def test_sleeping_model_that_cannot_wake_says_why(server: Running) -> None:
    server.pack("once", "loads_once", SLEEPY)
    server.start()
    assert server.predict("once", "x").text == "here"
    server.until(lambda: server.describe("once").get("dormant"), "it stays awake")

    answer = server.predict("once", "x")

    assert answer.status == 503
    assert "its disk is gone" in answer.message
    assert "dormant" not in server.describe("once")
    assert server.ask("GET", "/health/ready").status == 503
