"""Where the time goes, as a client of /metrics sees it; and handlers that are coroutines."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.e2e.running import Running, running

PARTS = "batchSize: 8\nmicro_batching: {micro_batch_size: 1}\n"
CONCURRENT = "asyncCommunication: true\n"
STAGES = ("preprocess", "inference", "postprocess", "encode")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    properties = "default_workers_per_model=1\n"
    for made in running(tmp_path_factory.mktemp("stages"), properties=properties):
        made.pack("doubling", "base_style")
        made.pack("squares", "micro_batching", PARTS)
        made.pack("echo", "echo")
        made.pack("bound", "loop_bound")
        made.pack("bound_concurrent", "loop_bound", CONCURRENT)
        made.pack("bound_class", "loop_bound_class")
        yield made.start()


def histogram(server: Running, name: str, model: str) -> tuple[float, float]:
    """Count and sum of seconds."""
    text = server.ask("GET", "/metrics", kind="metrics").text
    label = f'model_name="{model}"'
    found = {
        kind: re.search(rf"^ts_{name}_seconds_{kind}{{[^}}]*{label}[^}}]*}} (\S+)$", text, re.M)
        for kind in ("count", "sum")
    }
    count, total = (float(each[1]) if each else 0.0 for each in found.values())
    return count, total


def test_each_stage_of_a_handler_is_measured(server: Running) -> None:
    for _ in range(3):
        answer = server.predict("doubling", "[1]", headers={"Content-Type": "application/json"})
        assert "[\n  2.0\n]" == answer.text
    measured = {stage: histogram(server, stage, "doubling") for stage in STAGES}
    whole, took_s = histogram(server, "handler", "doubling")

    assert dict.fromkeys(STAGES, 3.0) == {stage: count for stage, (count, _) in measured.items()}
    assert all(seconds > 0 for _, seconds in measured.values())
    assert 3.0 == whole
    assert sum(seconds for _, seconds in measured.values()) <= took_s


def test_each_part_of_a_micro_batch_is_measured(server: Running) -> None:
    answers = server.together("squares", ["1", "2", "3", "4"])

    assert [200] * 4 == [a.status for a in answers]
    for stage in STAGES[:3]:
        assert 4.0 == histogram(server, stage, "squares")[0]


def test_a_function_has_no_stages_but_that_of_writing(server: Running) -> None:
    assert 200 == server.predict("echo", "text").status

    assert [0, 0, 0, 1] == [histogram(server, stage, "echo")[0] for stage in STAGES]


def test_waiting_for_company_is_part_of_the_queue(server: Running) -> None:
    server.predict("echo", "text")
    batches, waited_s = histogram(server, "batch_wait", "echo")
    requests, queued_s = histogram(server, "queue", "echo")

    assert batches == requests, "batches of one"
    assert 0 <= waited_s <= queued_s


@pytest.mark.parametrize("model", ["bound", "bound_concurrent"])
def test_what_a_coroutine_makes_at_load_lives_on_the_loop_of_its_calls(
    server: Running, model: str
) -> None:
    assert ["abab"] * 2 == [server.predict(model, "ab").text for _ in range(2)]


def test_a_coroutine_may_initialize(server: Running) -> None:
    assert "a True" == server.predict("bound_class", "a").text
