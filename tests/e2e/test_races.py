"""What happens when calls that change models meet, or come at the wrong moment.

A call may fail; it must not hang, leave a process behind or make the server answer nonsense.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.running import Answer, Running

ONE = "minWorkers: 1\nmaxWorkers: 1\n"
LIMIT_S = 20.0


def processes(server: Running) -> list[int]:
    """Process ids of the server's workers and templates, also of such that nobody knows of."""
    mark = f"LOG_LOCATION={server.root / 'logs'}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            title = (entry / "cmdline").read_bytes()
            ours = b"marserve.worker" in title or b"marserve.template" in title
            if ours and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended meanwhile
    return found


def hang(server: Running, name: str) -> None:
    """Puts a model into the store whose import never ends."""
    server.pack(name, "hanging_import")


@pytest.fixture
def empty(server: Running) -> Running:
    """A running server without models."""
    server.models = None
    return server


def register(server: Running, query: str) -> Answer:
    return server.manage("POST", f"/models?{query}", timeout_s=LIMIT_S)


def in_background(work: Callable[..., Answer], *arguments: object) -> Future[Answer]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work, *arguments)
    pool.shutdown(wait=False)
    return future


def test_import_that_never_ends_fails_at_the_startup_timeout(empty: Running) -> None:
    hang(empty, "hanging")
    empty.start()

    answer = register(empty, "url=hanging.mar&initial_workers=1&startup_timeout=2")

    assert answer.status == 500
    assert "startupTimeout (2 s)" in answer.message
    empty.until(lambda: not processes(empty), "a process lives on")


def test_unregistering_while_the_handler_is_imported_leaves_no_process(empty: Running) -> None:
    hang(empty, "hanging")
    empty.start()
    assert register(empty, "url=hanging.mar&initial_workers=1&synchronous=false").status == 202
    empty.until(lambda: processes(empty), "nothing starts")

    answer = empty.manage("DELETE", "/models/hanging", timeout_s=LIMIT_S)

    assert answer.status == 200
    empty.until(lambda: not processes(empty), "a process lives on")


def test_stopping_while_the_handler_is_imported_leaves_no_process(empty: Running) -> None:
    hang(empty, "hanging")
    empty.start()
    assert register(empty, "url=hanging.mar&initial_workers=2&synchronous=false").status == 202
    empty.until(lambda: processes(empty), "nothing starts")

    assert empty.stop(signal.SIGTERM, LIMIT_S) == 0
    assert processes(empty) == []


def test_registration_that_is_unregistered_meanwhile_is_answered(empty: Running) -> None:
    hang(empty, "hanging")
    empty.start()
    waiting = in_background(register, empty, "url=hanging.mar&initial_workers=1")
    empty.until(lambda: empty.manage("GET", "/models").json["models"], "it is not registered")

    assert empty.manage("DELETE", "/models/hanging", timeout_s=LIMIT_S).status == 200

    assert waiting.result(LIMIT_S).status == 500
    assert empty.manage("GET", "/models").json == {"models": []}


def test_requests_that_wait_are_told_when_the_starting_worker_is_given_up(empty: Running) -> None:
    hang(empty, "hanging")
    empty.start()
    register(empty, "url=hanging.mar&initial_workers=1&synchronous=false")
    waiting = in_background(empty.predict, "hanging", "x")
    empty.until(
        lambda: empty.describe("hanging")["jobQueueStatus"]["pendingRequests"], "nobody waits"
    )

    empty.manage("PUT", "/models/hanging?min_worker=0&max_worker=0")

    assert waiting.result(LIMIT_S).status == 503


def test_default_version_that_fails_to_load_hands_over(empty: Running) -> None:
    hang(empty, "model")
    empty.start()
    first = in_background(register, empty, "url=model.mar&initial_workers=1&startup_timeout=4")
    empty.until(lambda: empty.manage("GET", "/models").json["models"], "it is not registered")
    empty.pack("model", "echo", version="2.0")
    assert register(empty, "url=model.mar&initial_workers=1").status == 200
    assert first.result(LIMIT_S).status == 500

    assert empty.manage("GET", "/models").json["models"][0]["modelName"] == "model"
    assert empty.ask("GET", "/ping").status == 200
    assert empty.predict("model", "served").text == "served"
    assert empty.describe("model")["modelVersion"] == "2.0"


@pytest.mark.parametrize("handler", ["\\ud800", "echo:\\udc80"])
def test_text_that_no_encoding_has_is_refused(empty: Running, handler: str) -> None:
    empty.pack("echo", "echo")
    empty.start()
    body = f'{{"url": "echo.mar", "handler": "{handler}", "initial_workers": 1}}'

    answer = empty.manage(
        "POST",
        "/models",
        body=body,
        headers={"Content-Type": "application/json"},
        timeout_s=LIMIT_S,
    )

    assert answer.status in (400, 500)
    assert empty.manage("GET", "/models").json == {"models": []}


def test_hung_request_of_a_worker_that_is_given_up_is_answered(empty: Running) -> None:
    empty.pack("slow", "slow", ONE + "responseTimeout: 1\n")
    empty.start()
    register(empty, "url=slow.mar")
    waiting = in_background(empty.predict, "slow", "1000")
    empty.wait_for("batch of 1 begins")

    assert empty.manage("PUT", "/models/slow?min_worker=0&max_worker=0").status == 202

    assert waiting.result(LIMIT_S).status == 504
    empty.until(lambda: not processes(empty) or not busy(empty), "the hung worker lives on")


def busy(server: Running) -> list[int]:
    """Workers alone: the template of a model stays as long as the model."""
    found = []
    for pid in processes(server):
        try:
            if b"marserve.worker W-" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def test_unregistering_that_takes_too_long_leaves_no_worker(empty: Running) -> None:
    empty.properties = "unregister_model_timeout=1"
    empty.pack("slow", "slow", ONE + "responseTimeout: 600\n")
    empty.start()
    register(empty, "url=slow.mar")
    waiting = in_background(empty.predict, "slow", "1000")
    empty.wait_for("batch of 1 begins")

    assert empty.manage("DELETE", "/models/slow", timeout_s=LIMIT_S).status == 408

    assert waiting.result(LIMIT_S).status in (500, 503)
    empty.until(lambda: not processes(empty), "the worker lives on")


def test_same_version_registered_many_times_at_once(empty: Running) -> None:
    empty.pack("echo", "echo", ONE)
    empty.start()

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: register(empty, "url=echo.mar"), range(6)))

    assert sorted(a.status for a in answers) == [200, 409, 409, 409, 409, 409]
    assert len(empty.worker_pids("echo")) == 1
    assert len(busy(empty)) == 1


def test_a_template_that_dies_while_it_imports(empty: Running) -> None:
    empty.pack("echo", "echo", ONE)
    hang(empty, "hanging")
    empty.start()
    waiting = in_background(register, empty, "url=hanging.mar&initial_workers=1&startup_timeout=5")
    (template,) = empty.until(lambda: processes(empty), "nothing starts")
    os.kill(template, signal.SIGKILL)

    assert waiting.result(LIMIT_S).status == 500
    empty.until(lambda: not processes(empty), "a process lives on")
