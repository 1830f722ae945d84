"""One bad request fails alone: whatever company it has, each answer is what it is when alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.handlers.context import Context
from marserve.handlers.errors import RequestError
from marserve.worker.execute import Executor
from marserve.worker.wire import Failure, Part, Request

WISHES = ["fine", "value", "key", "memory", "exit", "refuse", "own", "object", "status", "mutate"]


class Handler:
    """Fails in any stage, as its rows wish; leaves traces in what it was given and in itself."""

    def handle(self, rows: list[dict[str, Any]], context: Context) -> list[Any]:
        wishes = [row.pop("body") for row in rows]
        for row in rows:
            row["seen"] = True
        for index, wish in enumerate(wishes):
            name = wish.partition(" ")[0]
            if name == "status":
                context.set_response_status(201, "Made", index)
                context.set_response_header(index, "x-made", wish)
        for wish in wishes:
            self.fail(wish)
        return [self.result(wish) for wish in wishes]

    def fail(self, wish: str) -> None:
        name = wish.partition(" ")[0]
        if name == "value":
            raise ValueError(wish)
        if name == "key":
            raise KeyError(wish)
        if name == "memory":
            raise MemoryError(wish)
        if name == "exit":
            raise SystemExit(wish)
        if name == "refuse":
            raise RequestError(wish, 418)

    def result(self, wish: str) -> object:
        name = wish.partition(" ")[0]
        if name == "own":
            return RequestError(wish, 422)
        return object() if name == "object" else f"answer to {wish}"


def run_alone(body: str, **more: Any) -> Failure:
    """Returns why a request fails that is alone."""
    executor = Executor(Handler().handle, Context("m", "/nowhere", {}), lambda *_: None, **more)
    part = Part("body", len(body), "text/plain")
    ((reply, _),) = executor.run([Request("id", "predict", {}, [part])], bytearray(body.encode()))
    assert reply.failure is not None
    return reply.failure


def run(bodies: list[str]) -> list[tuple[Any, ...]]:
    """Returns what the callers get, in the order of the bodies."""
    executor = Executor(Handler().handle, Context("m", "/nowhere", {}), lambda *_: None)
    data = [body.encode() for body in bodies]
    requests = [
        Request(f"id-{n}", "predict", {}, [Part("body", len(piece), "text/plain")])
        for n, piece in enumerate(data)
    ]
    answers = executor.run(requests, bytearray(b"".join(data)))
    assert [reply.id for reply, _ in answers] == [request.id for request in requests]
    return [
        (r.status, r.phrase, r.headers, r.failure, bytes(body), r.size, r.last)
        for r, body in answers
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(WISHES), min_size=1, max_size=12))
def test_each_answer_is_what_it_is_when_alone(wishes: list[str]) -> None:
    bodies = [f"{wish} {number}" for number, wish in enumerate(wishes)]

    assert run(bodies) == [run([body])[0] for body in bodies]


@pytest.mark.parametrize("wish", ["value x", "memory x", "exit x"])
def test_tracebacks_are_told_on_demand(wish: str) -> None:
    told, untold = run_alone(wish, tracebacks=True), run_alone(wish)

    assert "in fail\n" in told.traceback
    assert untold.traceback == ""
    assert untold.message == told.message


def test_what_a_handler_says_itself_has_no_traceback() -> None:
    assert run_alone("refuse x", tracebacks=True).traceback == ""
