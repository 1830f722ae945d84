from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.handlers.base import BaseHandler
from marserve.handlers.context import Context
from marserve.handlers.metrics import HandlerMetrics
from marserve.handlers.micro_batching import MicroBatching


class Tripler(BaseHandler):
    """Triples numbers and keeps the parts it saw; meets itself in a stage if told to."""

    def __init__(self) -> None:
        super().__init__()
        self.micro = MicroBatching(self)
        self.seen: list[tuple[int, list[Any]]] = []
        self.meeting: threading.Barrier | None = None

    def preprocess(self, data: list[Any]) -> Any:
        self.seen.append((self.micro.get_micro_batch_idx(), [row["body"] for row in data]))
        return [row["body"] for row in data]

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if self.meeting is not None:
            self.meeting.wait(timeout=30)
        if None in data:
            raise ValueError("nothing cannot be tripled")
        return [3 * value for value in data]

    def postprocess(self, data: Any) -> list[Any]:
        return [str(value) for value in data]

    def get_insights(self, tensor_data: Any, _: Any, target: Any = 0) -> list[Any]:
        return [f"because of {tensor_data[0]}"]

    def describe_handle(self) -> Any:
        return {"times": 3}


def context_of(**headers: str) -> Context:
    context = Context("m", "/nowhere", {"model": {}}, metrics=HandlerMetrics("m"))
    context.begin(["a"], [headers])
    return context


def rows_of(*values: Any) -> list[Any]:
    return [{"body": value} for value in values]


def test_parts_are_answered_in_the_batchs_order() -> None:
    handler = Tripler()
    handler.micro.micro_batch_size = 2

    results = handler.micro(rows_of(1, 2, 3, 4, 5), context_of())
    handler.micro.shutdown()

    assert ["3", "6", "9", "12", "15"] == results
    assert [(0, [1, 2]), (1, [3, 4]), (2, [5])] == sorted(handler.seen)


def test_a_stage_runs_as_often_at_once_as_it_may() -> None:
    handler = Tripler()
    handler.micro.parallelism = {"inference": 3}
    handler.meeting = threading.Barrier(3)  # passes only if three parts are in the stage together

    results = handler.micro(rows_of(1, 2, 3), context_of())
    handler.micro.shutdown()

    assert ["3", "6", "9"] == results
    assert {"preprocess": 1, "inference": 3, "postprocess": 1} == handler.micro.parallelism


def test_an_error_in_one_part_reaches_the_caller_and_leaves_the_threads_usable() -> None:
    handler = Tripler()

    with pytest.raises(ValueError, match="nothing cannot be tripled"):
        handler.micro(rows_of(1, None, 3), context_of())
    after = handler.micro(rows_of(2), context_of())
    handler.micro.shutdown()

    assert ["6"] == after


def test_explanations_and_descriptions_go_the_handlers_own_way() -> None:
    handler = Tripler()

    explained = handler.micro(rows_of(7), context_of(explain="True"))
    described = handler.micro(rows_of(7), context_of(describe="True"))

    assert (["because of 7"], [{"times": 3}]) == (explained, described)


def test_the_time_of_the_batch_is_reported() -> None:
    handler, context = Tripler(), context_of()

    handler.micro(rows_of(1), context)
    handler.micro.shutdown()

    assert ["HandlerTime"] == [values[0] for values in context.metrics.drain()]


def test_settings_can_change_between_batches() -> None:
    handler = Tripler()

    first = handler.micro(rows_of(1, 2), context_of())
    handler.micro.parallelism = {"preprocess": 2, "inference": 2, "postprocess": 2}
    handler.micro.micro_batch_size = 8
    second = handler.micro(rows_of(1, 2), context_of())
    handler.micro.shutdown()

    assert ["3", "6"] == first == second


@pytest.mark.parametrize("size", [0, -1, 1.5, "2", True, None])
def test_a_wrong_size_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match="micro_batch_size: expected a whole number >= 1"):
        MicroBatching(None, size)


@pytest.mark.parametrize("parallelism", [{"postproces": 1}, {"inference": 0}, {"inference": "2"}])
def test_a_wrong_parallelism_is_refused(parallelism: Any) -> None:
    with pytest.raises(ValueError, match="parallelism: "):
        MicroBatching(None, 1, parallelism)


@given(
    values=st.lists(st.integers(), max_size=12),
    size=st.integers(1, 5),
    counts=st.lists(st.integers(1, 3), min_size=3, max_size=3),
)
@settings(max_examples=30, deadline=None)
def test_results_never_depend_on_size_and_parallelism(
    values: list[int], size: int, counts: list[int]
) -> None:
    handler = Tripler()
    handler.micro.micro_batch_size = size
    stages = ("preprocess", "inference", "postprocess")
    handler.micro.parallelism = dict(zip(stages, counts, strict=True))

    results = handler.micro(rows_of(*values), context_of())
    handler.micro.shutdown()

    assert [str(3 * value) for value in values] == results
