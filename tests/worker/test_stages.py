"""How long the stages of a handler take, noted wherever they are called from."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections import Counter
from typing import Any

import pytest

from marserve.handlers.base import BaseHandler
from marserve.handlers.context import Context
from marserve.handlers.metrics import HandlerMetrics
from marserve.handlers.micro_batching import MicroBatching
from marserve.worker.stages import STAGES, Spans, watch


class Squares(BaseHandler):
    def preprocess(self, data: Any) -> Any:
        return [row["body"] for row in data]

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        return [value**2 for value in data]

    def postprocess(self, data: Any) -> Any:
        return data


class Longer(Squares):
    def preprocess(self, data: Any) -> Any:
        return super().preprocess(data)  # one call to the user, not two


class InParts(Squares):
    def __init__(self) -> None:
        super().__init__()
        self.handle = MicroBatching(self, micro_batch_size=2)  # type: ignore[method-assign]


class OwnHandle(Squares):
    def handle(self, data: Any, context: Any) -> Any:
        return self.postprocess(self.inference(self.inference(self.preprocess(data))))


class Slots:
    __slots__ = ()

    def preprocess(self, data: Any) -> Any:
        return data

    def handle(self, data: Any, context: Any) -> Any:
        return self.preprocess(data)


class Asynchronous:
    async def inference(self, data: Any) -> Any:
        await asyncio.sleep(0)
        return data

    async def handle(self, data: Any, context: Any) -> Any:
        return await self.inference(data)


ROWS = [{"body": n} for n in range(5)]


def context() -> Context:
    made = Context("m", "/", {"model": {}}, metrics=HandlerMetrics("m"))
    made.begin(list("abcde"), [{}] * 5)
    return made


def calls(spans: Spans) -> dict[str, int]:
    assert all(took_s >= 0 for _, took_s in spans)
    return dict(Counter(STAGES[stage] for stage, _ in spans))


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (Squares(), {"preprocess": 1, "inference": 1, "postprocess": 1}),
        (Longer(), {"preprocess": 1, "inference": 1, "postprocess": 1}),
        (OwnHandle(), {"preprocess": 1, "inference": 2, "postprocess": 1}),
        (InParts(), {"preprocess": 3, "inference": 3, "postprocess": 3}),
        (Slots(), {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_calls_of_stages_are_noted(handler: Any, expected: dict[str, int]) -> None:
    unwatched = handler.handle(ROWS, context())
    spans: Spans = []
    watch(handler.handle, spans)

    assert unwatched == handler.handle(ROWS, context())
    assert expected == calls(spans)


def test_a_call_that_raises_is_noted_too() -> None:
    handler, spans = Squares(), list[tuple[int, float]]()
    watch(handler.handle, spans)

    with pytest.raises(KeyError):
        handler.handle([{"other": 1}], context())
    assert {"preprocess": 1} == calls(spans)


def test_coroutines_are_noted_with_what_they_await() -> None:
    handler, spans = Asynchronous(), list[tuple[int, float]]()
    watch(handler.handle, spans)

    assert ROWS == asyncio.run(handler.handle(ROWS, None))
    assert {"inference": 1} == calls(spans)


def test_a_function_has_no_stages() -> None:
    def handle(data: Any, context: Any) -> Any:
        return data

    spans: Spans = []
    watch(handle, spans)

    assert ROWS == handle(ROWS, None)
    assert [] == spans


def test_what_is_watched_is_still_a_method() -> None:
    handler, spans = Squares(), list[tuple[int, float]]()
    watch(handler.handle, spans)
    stage: Any = handler.preprocess
    copied = copy.deepcopy(handler)

    assert ("preprocess", Squares.preprocess) == (stage.__name__, stage.__func__)
    assert [0, 1, 4, 9, 16] == copied.handle(ROWS, context())
    assert [] == spans
    assert [2] == pickle.loads(pickle.dumps(stage))([{"body": 2}])
