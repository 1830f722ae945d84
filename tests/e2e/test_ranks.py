"""Workers that consist of several processes: they answer as one, fall as one and leave nothing."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.e2e.running import Running, running

TWO = "minWorkers: 1\nmaxWorkers: 1\nparallelType: tp\ntorchrun:\n  nproc-per-node: 2\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    yield from running(tmp_path)


def gone(pids: list[int]) -> bool:
    alive = [p for p in pids if psutil.pid_exists(p)]
    return not any(psutil.Process(p).status() != psutil.STATUS_ZOMBIE for p in alive)


def ranks(server: Running, name: str) -> list[int]:
    (worker,) = server.describe(name)["workers"]
    assert worker["status"] == "READY"
    pids: list[int] = worker["rankPids"]
    return pids


def test_a_handler_for_torchrun_runs_in_every_rank_and_rank_0_answers(server: Running) -> None:
    server.pack("sum", "torchrun_style", TWO)
    server.start()

    answer = server.predict("sum", "3")
    bad = server.predict("sum", "three")
    after = server.predict("sum", "4")

    pids = ranks(server, "sum")
    assert answer.json == {"sum": 33.0, "ranks": 2.0, "rank": 0, "local": 0, "pid": pids[0]}
    assert bad.status == 500
    assert after.json["sum"] == 44.0
    assert len(set(pids)) == 2
    log = (server.root / "logs" / "model_log.log").read_text()
    assert "-rank0-stdout MODEL_LOG - I am rank 0 of 2" in log
    assert "-rank1-stdout MODEL_LOG - I am rank 1 of 2" in log
    assert server.describe("sum")["parallelLevel"] == 2

    assert server.stop() == 0
    assert gone(pids)


def test_a_rank_that_is_killed_takes_the_group_and_no_request_with_it(server: Running) -> None:
    server.pack("sum", "torchrun_style", TWO)
    server.start()
    first = ranks(server, "sum")
    answers: list[tuple[str, int, object]] = []
    stop = threading.Event()

    def load(client: int) -> None:
        for number in range(client, 10**9, 4):
            if stop.is_set():
                return
            answer = server.predict("sum", str(number % 1000))
            wrong = answer.status == 200 and answer.json["sum"] != number % 1000 * 11.0
            answers.append((answer.text, answer.status, wrong))

    clients = [threading.Thread(target=load, args=(n,)) for n in range(4)]
    for client in clients:
        client.start()
    old = first
    for victim in (1, 0):
        count = len(answers)
        server.until(lambda seen=count: len(answers) > seen + 8, "no answers under load")
        os.kill(old[victim], signal.SIGKILL)
        server.until(lambda pids=old: gone(pids), "a rank outlived its group")
        server.until(
            lambda pids=old: (
                [
                    w.get("rankPids")
                    for w in server.describe("sum")["workers"]
                    if w["status"] == "READY"
                ]
                not in ([], [pids])
            ),
            "no new group",
        )
        old = ranks(server, "sum")
    count = len(answers)
    server.until(lambda: len(answers) > count + 8, "no answers after the fall")
    stop.set()
    for client in clients:
        client.join()

    assert [a for a in answers if a[1] != 200 or a[2]] == []
    assert not set(first) & set(old)
    server.stop()
    assert gone(old)


def test_what_a_rank_cannot_load_is_said_of_that_rank(server: Running) -> None:
    server.environment["FAIL_RANK"] = "1"
    server.pack("sum", "torchrun_style", TWO + "maxRetryTimeoutInSec: 0\n")
    server.start()

    described = server.describe("sum")

    assert described["lastError"] == "rank 1: ValueError: rank 1 has no weights"
    assert [w for w in described["workers"] if w["status"] == "READY"] == []
    assert server.predict("sum", "1").status == 503


def test_no_rank_outlives_a_server_that_is_killed(server: Running) -> None:
    server.pack("sum", "torchrun_style", TWO)
    server.start()
    pids = ranks(server, "sum")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # so that they cannot see that the server is gone

    assert server.process is not None
    server.process.kill()
    server.process.wait()
    for pid in pids:
        if psutil.pid_exists(pid):
            psutil.wait_procs([psutil.Process(pid)], timeout=20)

    assert gone(pids)


def test_a_handler_of_kind_custom_is_one_process_that_starts_the_others(server: Running) -> None:
    level = "minWorkers: 1\nmaxWorkers: 1\nparallelType: custom\nparallelLevel: 3\n"
    server.pack("sum", "custom_ranks", level)
    server.start()

    answer = server.predict("sum", "2")
    (worker,) = server.describe("sum")["workers"]
    parts: list[int] = answer.json["parts"]

    assert answer.json["sum"] == 42.0
    assert len(parts) == 2
    assert "rankPids" not in worker
    assert {psutil.Process(pid).ppid() for pid in parts} == {worker["pid"]}

    os.kill(worker["pid"], signal.SIGKILL)
    server.until(lambda: gone(parts), "what the handler had started outlived it")
    again = server.until(lambda: (a := server.predict("sum", "2")).status == 200 and a, "no worker")
    assert again.json["sum"] == 42.0
    assert not set(parts) & set(again.json["parts"])

    assert server.stop() == 0
    assert gone(again.json["parts"])
