"""Versions side by side under load: swaps, canaries and shadows, and nobody notices."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.e2e.running import Answer, Running

ONE = "minWorkers: 1\nmaxWorkers: 1\n"


@pytest.fixture
def two(server: Running) -> Running:
    """A server with version 1.0, and an archive of 2.0 and 3.0 beside it."""
    for version in ("3.0", "2.0", "1.0"):
        archive = server.pack("v", "versioned", ONE, version=version)
        archive.rename(server.store / f"v{version[0]}.mar")
    server.models = "v1.mar"
    return server.start()


def register(server: Running, version: str) -> None:
    assert server.manage("POST", f"/models?url=v{version[0]}.mar").status == 200


def direct(server: Running, **rules: Any) -> Answer:
    return server.manage("PUT", "/models/v/traffic", body=json.dumps(rules))


@contextmanager
def load(server: Running, body: str = "x") -> Iterator[list[Answer]]:
    stop, answers = threading.Event(), []

    def client() -> None:
        while not stop.is_set():
            answers.append(server.predict("v", body))

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_new_version_swaps_in_without_a_failed_request(two: Running) -> None:
    with load(two) as answers:
        two.until(lambda: len(answers) > 50, "no answers")
        register(two, "2.0")
        swapped = two.manage("PUT", "/models/v/2.0/set-default")
        removed = two.manage("DELETE", "/models/v/1.0")
        mark = len(answers)
        two.until(lambda: len(answers) > mark + 50, "no answers after the swap")

    assert (swapped.status, removed.status) == (200, 200)
    assert {a.status for a in answers} == {200}
    texts = [a.text for a in answers]
    assert (texts[0], set(texts[mark + 8 :])) == ("1.0", {"2.0"})


def test_version_that_cannot_load_leaves_the_old_one_serving(two: Running) -> None:
    two.pack("v", "broken_load", ONE, version="9.0").rename(two.store / "v9.mar")
    with load(two) as answers:
        failed = two.manage("POST", "/models?url=v9.mar")
        two.until(lambda: len(answers) > 50, "no answers")

    assert failed.status == 500
    assert {(a.status, a.text) for a in answers} == {(200, "1.0")}


def test_canary_gets_its_share_and_no_more(two: Running) -> None:
    register(two, "2.0")

    rules = direct(two, weights={"1.0": 75, "2.0": 25})
    seen = Counter(two.predict("v", "x").text for _ in range(400))
    pinned = Counter(two.predict("v/1.0", "x").text for _ in range(20))

    assert rules.json == {
        "modelName": "v",
        "default": "1.0",
        "weights": {"1.0": 75, "2.0": 25},
    }
    assert 50 <= seen["2.0"] <= 150
    assert pinned == {"1.0": 20}
    every = two.manage("GET", "/models/v/all").json
    assert {d["modelVersion"]: d["traffic"]["weight"] for d in every} == {"1.0": 75, "2.0": 25}
    listed = two.manage("GET", "/models").json["models"]
    assert listed[0]["traffic"]["weights"] == {"1.0": 75, "2.0": 25}


def test_canary_without_a_worker_costs_nobody_an_answer(two: Running) -> None:
    register(two, "2.0")
    direct(two, weights={"1.0": 1, "2.0": 99})
    with load(two) as answers:
        two.until(lambda: len(answers) > 50, "no answers")
    two.manage("PUT", "/models/v/2.0?min_worker=0&synchronous=true")
    with load(two) as answers:
        mark = len(answers)
        two.until(lambda: len(answers) > mark + 50, "no answers without the canary")
        two.manage("DELETE", "/models/v/2.0")
        mark = len(answers)
        two.until(lambda: len(answers) > mark + 50, "no answers after it is gone")

    assert {a.status for a in answers} == {200}
    assert {a.text for a in answers[mark + 8 :]} == {"1.0"}
    assert two.manage("GET", "/models/v/traffic").json["weights"] == {"1.0": 1}


def test_set_default_ends_the_rules(two: Running) -> None:
    register(two, "2.0")
    direct(two, weights={"1.0": 50, "2.0": 50}, shadow="2.0")

    two.manage("PUT", "/models/v/2.0/set-default")

    assert two.manage("GET", "/models/v/traffic").json == {"modelName": "v", "default": "2.0"}
    assert {two.predict("v", "x").text for _ in range(20)} == {"2.0"}
    assert "traffic" not in two.describe("v")


def test_shadow_sees_every_request_and_nobody_sees_the_shadow(two: Running) -> None:
    register(two, "2.0")
    direct(two, shadow="2.0")

    answers = [two.predict("v", "fail") for _ in range(10)]
    answers += [two.predict("v", "fine") for _ in range(10)]
    two.predict("v/1.0", "fail")

    assert {(a.status, a.text) for a in answers} == {(200, "1.0")}

    def rules() -> Any:
        return two.manage("GET", "/models/v/traffic").json

    two.until(lambda: rules()["shadowFailures"] == 10, "failures are not counted")
    assert rules() == {
        "modelName": "v",
        "default": "1.0",
        "shadow": "2.0",
        "shadowRequests": 20,
        "shadowFailures": 10,
    }
    text = two.ask("GET", "/metrics", kind="metrics").text
    assert 'ts_mirrored_failures_total{model_name="v",model_version="2.0",' in text


def test_shadow_without_a_worker_is_only_counted(two: Running) -> None:
    register(two, "2.0")
    direct(two, shadow="2.0")
    two.manage("PUT", "/models/v/2.0?min_worker=0&synchronous=true")

    answers = [two.predict("v", "x") for _ in range(5)]
    two.manage("DELETE", "/models/v/2.0")
    after = two.predict("v", "x")

    assert {a.text for a in [*answers, after]} == {"1.0"}
    assert two.manage("GET", "/models/v/traffic").json == {"modelName": "v", "default": "1.0"}


def test_rules_name_versions_that_exist(two: Running) -> None:
    unknown = direct(two, weights={"1.0": 1, "7.0": 1})
    shadow = direct(two, shadow="7.0")
    slip = direct(two, weight={"1.0": 1})
    nobody = two.manage("PUT", "/models/nobody/traffic", body="{}")

    assert [a.status for a in (unknown, shadow, slip, nobody)] == [404, 404, 400, 404]
    assert "7.0" in unknown.message
    assert two.manage("GET", "/models/v/traffic").json == {"modelName": "v", "default": "1.0"}
