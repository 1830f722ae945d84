"""Each fault under the load of eight clients: every request is counted, none is lost or doubled."""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.e2e.chaos import Chaos, children, titled
from tests.e2e.running import Running, pack


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_worker(server: Running, workers: int) -> None:
    chaos = Chaos(server, "batchSize: 4\nmaxBatchDelay: 1\n").start(workers)
    with chaos:
        (pid, *_) = chaos.serving(workers)
        os.kill(pid, signal.SIGKILL)
        chaos.wait(300)
        after = chaos.serving(workers)

    chaos.check()
    chaos.check_run_once(but=4)
    assert pid not in after


def test_worker_killed_again_and_again(server: Running) -> None:
    chaos = Chaos(server).start(2)
    with chaos:
        for _ in range(3):
            os.kill(chaos.serving(2)[0], signal.SIGKILL)
            chaos.wait(100)
        chaos.serving(2)
        chaos.wait(50)

    chaos.check()
    chaos.check_run_once(but=3)


def test_requests_in_flight_are_not_tried_again_if_the_model_says_so(server: Running) -> None:
    chaos = Chaos(server, "retryInFlight: false\nworkMs: 5\n").start(2)
    with chaos:
        os.kill(chaos.serving(2)[0], signal.SIGKILL)
        chaos.wait(200)
        chaos.serving(2)

    chaos.check(507)
    chaos.check_run_once(but=0)
    failed = [o for o in chaos.good() if o.status == 507]
    assert len(failed) <= 1
    assert all("SIGKILL" in o.text for o in failed)


def test_stopped_worker(server: Running) -> None:
    chaos = Chaos(server, "responseTimeout: 1\n").start(2)
    with chaos:
        pid = chaos.serving(2)[0]
        os.kill(pid, signal.SIGSTOP)
        server.until(lambda: pid not in server.worker_pids("chaos"), "still there")
        chaos.serving(2)
        chaos.wait(100)

    chaos.check(504)
    chaos.check_run_once(but=2)
    assert sum(o.status == 504 for o in chaos.good()) <= 1


def test_hung_worker(server: Running) -> None:
    chaos = Chaos(server, "responseTimeout: 1\n").start(2)
    with chaos:
        before = chaos.serving(2)
        hung = chaos.ask("loop", "hang")
        server.until(lambda: server.worker_pids("chaos") != before, "still there")
        chaos.serving(2)
        chaos.wait(100)

    chaos.check()
    chaos.check_run_once()
    assert (504, "RequestTimeoutException") == (hung.status, hung.type)
    assert chaos.executions()["loop"] == 1


@pytest.mark.parametrize(("fault", "status"), [("exit", 500), ("kill", 507)])
def test_request_that_ends_its_worker(server: Running, fault: str, status: int) -> None:
    chaos = Chaos(server, "batchSize: 4\nmaxBatchDelay: 1\n").start(2)
    with chaos:
        chaos.serving(2)
        cause = chaos.ask("cause", fault)
        after = chaos.serving(2)
        chaos.wait(100)

    chaos.check()
    chaos.check_run_once(but=3)  # those that shared its batch
    assert (status, "InternalServerException") == (cause.status, cause.type)
    assert "Worker died." in cause.text
    killed = {int(batch[0]) for batch in chaos.batches() if "cause" in batch[1:]}
    assert len(killed) == 2  # the second may be the one that took the first one's place
    assert not killed & set(after)


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("preprocess", 500, "ValueError: f"),
        ("inference", 500, "KeyError: 'f"),
        ("postprocess", 500, "RuntimeError: nothing can be made of it"),
        ("object", 500, "Unsupported model output data type: object"),
        ("memory", 507, "MemoryError"),
        ("sys_exit", 500, "sys.exit(3)"),
    ],
)
def test_handler_that_fails(server: Running, fault: str, status: int, words: str) -> None:
    chaos = Chaos(server, "batchSize: 4\nmaxBatchDelay: 1\n").start(1)
    with chaos:
        before = chaos.serving(1)
        failed = [chaos.ask(f"f{index}", fault) for index in range(10)]
        chaos.wait(100)
        after = chaos.serving(1)

    chaos.check()
    assert {status} == {o.status for o in failed}
    assert all(o.type == "InternalServerException" and words in o.text for o in failed)
    assert before == after
    chaos.check_run_once(but=30)  # at most three companions of each


def test_wrong_number_of_results(server: Running) -> None:
    chaos = Chaos(server, "batchSize: 4\nmaxBatchDelay: 1\n").start(1)
    with chaos:
        failed = [chaos.ask(f"f{index}", "length") for index in range(10)]
        chaos.wait(100)

    chaos.check(500)  # nobody can tell whose results they are: the batch fails, no row is guessed
    chaos.check_run_once()
    blamed = [o for o in chaos.outcomes if o.status == 500]
    assert {o.token for o in failed} <= {o.token for o in blamed}
    assert all("number of batch response mismatched" in o.text for o in blamed)
    company = {t for b in chaos.batches() if any(x.startswith("f") for x in b) for t in b[1:]}
    assert {o.token for o in blamed} <= company


def test_killed_template(server: Running) -> None:
    chaos = Chaos(server).start(1)
    assert server.process is not None
    templates = [c for c in children(server.process.pid) if titled(c, "marserve.template")]
    assert templates
    with chaos:
        for template in templates:
            os.kill(template, signal.SIGKILL)
        chaos.wait(100)
        (pid,) = chaos.serving(1)
        os.kill(pid, signal.SIGKILL)
        chaos.wait(100)
        (after,) = chaos.serving(1)

    chaos.check()
    chaos.check_run_once(but=1)
    assert pid != after


def test_scaling(server: Running) -> None:
    chaos = Chaos(server).start(1)
    with chaos:
        for count in (3, 1, 2, 1):
            path = f"/models/chaos?min_worker={count}&max_worker={count}&synchronous=true"
            assert server.manage("PUT", path).status == 200
            chaos.wait(100)

    chaos.check()
    chaos.check_run_once()


def test_new_version_takes_over(server: Running) -> None:
    chaos = Chaos(server).start(1)
    pack(server.root / "next", "chaos", "chaos", chaos.config, "2.0")
    (server.root / "next" / "chaos.mar").rename(server.store / "chaos2.mar")
    with chaos:
        path = "/models?url=chaos2.mar&initial_workers=1&synchronous=true"
        assert server.manage("POST", path).status == 200
        assert server.manage("PUT", "/models/chaos/2.0/set-default").status == 200
        assert server.manage("DELETE", "/models/chaos/1.0").status == 200
        chaos.wait(100)

    chaos.check()
    chaos.check_run_once()
    versions = [o.text.split()[1] for o in chaos.outcomes]
    assert {"1.0", "2.0"} == set(versions)
    assert "2.0" == versions[-1]


def test_version_that_cannot_be_loaded_leaves_the_old_one(server: Running) -> None:
    chaos = Chaos(server).start(1)
    pack(server.root / "next", "chaos", "chaos", chaos.config + "refuseToLoad: true\n", "2.0")
    (server.root / "next" / "chaos.mar").rename(server.store / "chaos2.mar")
    with chaos:
        answer = server.manage("POST", "/models?url=chaos2.mar&initial_workers=1")
        chaos.wait(100)

    assert answer.status == 500
    assert "this version cannot be loaded" in answer.message
    assert server.manage("GET", "/models/chaos/2.0").status == 404
    chaos.check()
    chaos.check_run_once()


def test_drain(server: Running) -> None:
    chaos = Chaos(server, "workMs: 5\n").start(1)
    with chaos:
        assert 0 == server.stop()

    # The clients ask on until the socket closes: refused then, or cut off before they were heard.
    chaos.check(503, 0)
    chaos.check_run_once()
    answered = {o.token for o in chaos.good() if o.status == 200}
    assert answered == set(chaos.executions())  # whatever was run was answered


def test_serving_again_soon_after_the_only_worker_died(server: Running) -> None:
    chaos = Chaos(server).start(1)
    (pid,) = chaos.serving(1)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)

    assert chaos.ask("next").status == 200
    assert time.monotonic() - began < 3


def test_death_of_a_worker_whose_child_lives_on_is_seen_at_once(server: Running) -> None:
    server.pack("parent", "parent", "minWorkers: 1\nmaxWorkers: 1\n")
    server.start()
    pid = server.predict("parent").text
    began = time.monotonic()
    os.kill(int(pid), signal.SIGKILL)
    answer = server.predict("parent")

    assert answer.status == 200
    assert answer.text != pid
    assert time.monotonic() - began < 10
