"""Why something failed, told to whoever asks: each cause is another one, and none is a path."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.running import Running, running

LOADS = {
    "import": (500, "ModuleNotFoundError: No module named 'no_such_library'"),
    "syntax": (500, "SyntaxError: expected ':'"),
    "exit": (500, "SystemExit: 5"),
    "hard": (500, "the worker exited with status 6 while it loaded the model"),
    "memory": (507, "MemoryError"),
}
ENDS = {
    "kill": (507, "was killed by SIGKILL"),
    "abort": (500, "was killed by SIGABRT"),
    "exit": (500, "exited with status 7"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("causes")
    for each in running(root, models=None, properties="max_response_size=1000"):
        for doom in LOADS:
            each.pack(f"load-{doom}", "doomed", f"doom: {doom}\n")
        for end in ENDS:
            each.pack(f"end-{end}", "doomed", f"end: {end}\n")
        each.pack("late", "doomed", f"doom: wait\nrelease: {root}/release\n")
        each.pack("large", "doomed", "batchSize: 4\nmaxBatchDelay: 100\n")
        yield each.start()


@pytest.mark.parametrize("doom", LOADS)
def test_each_way_of_failing_to_load_has_its_own_words(server: Running, doom: str) -> None:
    status, cause = LOADS[doom]
    name = f"load-{doom}"

    refused = server.manage("POST", f"/models?url={name}.mar&initial_workers=1")

    assert status == refused.status
    assert cause in refused.message
    assert str(server.root) not in refused.text
    server.wait_for(f"{name} 1.0: a worker failed to load: {cause}")


def test_where_it_stays_registered_describe_and_requests_tell_the_cause(server: Running) -> None:
    path = "/models?url=load-hard.mar&model_name=stays&initial_workers=1&synchronous=false"
    assert server.manage("POST", path).status == 202
    server.until(lambda: "lastError" in server.describe("stays"), "no cause")

    described = server.describe("stays")
    asked = server.predict("stays", "x")

    assert LOADS["hard"][1] == described["lastError"]
    assert "about to end" in described["lastErrorDetail"]
    assert 503 == asked.status
    assert LOADS["hard"][1] in asked.message
    assert 503 == server.ask("GET", "/health/ready").status
    assert 200 == server.manage("DELETE", "/models/stays").status


def log_has(log: Path, text: str) -> bool:
    return text in log.read_text()


@pytest.mark.parametrize("end", ENDS)
def test_each_way_of_dying_is_told_in_answer_describe_and_log(server: Running, end: str) -> None:
    status, cause = ENDS[end]
    name = f"end-{end}"
    assert 200 == server.manage("POST", f"/models?url={name}.mar&initial_workers=2").status

    dead = server.predict(name, "end")
    fine = server.predict(name, "x")
    death = server.until(lambda: server.describe(name).get("lastDeath"), "no death")

    assert (status, "InternalServerException") == (dead.status, dead.json["type"])
    assert cause in dead.message
    assert "last words" not in dead.text
    assert dead.headers["x-request-id"]
    assert "fine" == fine.text
    assert cause == death["cause"]
    assert "last words" in death["lastLines"]
    server.wait_for(f"worker {death['worker']} {cause}")
    for name in ("model_log.log", "ts_log.log"):  # each is written by a thread of its own
        log = Path(server.root) / "logs" / name
        server.until(partial(log_has, log, "last words"), f"no last words in {name}")


def test_memory_that_runs_out_in_one_model_spares_the_others(server: Running) -> None:
    """It fails to load for want of memory, or the kernel kills its worker to have some."""
    for url, name in (("large", "spared"), ("end-kill", "starved")):
        path = f"/models?url={url}.mar&model_name={name}&initial_workers=1"
        assert 200 == server.manage("POST", path).status
    before = server.worker_pids("spared")

    assert 507 == server.manage("POST", "/models?url=load-memory.mar&initial_workers=1").status
    assert 507 == server.predict("starved", "end").status

    assert "fine" == server.predict("spared", "x").text
    assert before == server.worker_pids("spared")
    server.until(lambda: server.worker_pids("starved"), "no new worker")
    assert "fine" == server.predict("starved", "x").text
    for name in ("spared", "starved"):
        assert 200 == server.manage("DELETE", f"/models/{name}").status


def test_it_is_not_ready_before_the_first_load_is_done(server: Running) -> None:
    path = "/models?url=late.mar&initial_workers=1&synchronous=false"
    assert 200 == server.ask("GET", "/health/ready").status
    assert 202 == server.manage("POST", path).status

    assert 503 == server.ask("GET", "/health/ready").status
    (server.root / "release").touch()
    server.until(lambda: server.ask("GET", "/health/ready").status == 200, "not ready")
    assert "fine" == server.predict("late", "x").text


def test_an_answer_that_is_too_large_fails_alone(server: Running) -> None:
    assert 200 == server.manage("POST", "/models?url=large.mar&initial_workers=1").status

    small, large, other = server.together("large", ["x", "large", "y"])

    assert ("fine", "fine") == (small.text, other.text)
    assert (500, "InternalServerException") == (large.status, large.json["type"])
    assert "2000 bytes exceeds max_response_size (1000 bytes)" in large.message
