"""Pieces put together: what comes out as one answer, and where that ends."""

from __future__ import annotations

from marserve.frontend.joining import Joined
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.worker.wire import Failure


def asked(most_bytes: int) -> tuple[Joined, InferenceRequest]:
    joined = Joined(most_bytes)
    joined.request = InferenceRequest("1", "predict", {}, [], [], joined)
    return joined, joined.request


async def test_one_answer_is_handed_on_as_it_is() -> None:
    joined, request = asked(3)
    chunk = Chunk(b"more than three bytes are the worker's to refuse")
    request.send(chunk)

    assert await joined.whole() is chunk


async def test_pieces_have_the_status_and_headers_of_the_first() -> None:
    joined, request = asked(100)
    request.send(Chunk(b"a", 201, headers={"X": "1"}, last=False))
    request.send(Chunk(b"b", 202, last=False))
    request.send(Chunk(b"c"))
    whole = await joined.whole()

    assert (whole.body, whole.status, whole.headers, whole.last) == (b"abc", 201, {"X": "1"}, True)


async def test_a_failure_after_pieces_is_the_answer() -> None:
    joined, request = asked(100)
    request.send(Chunk(b"a", last=False))
    request.send(Chunk(status=500, failure=Failure("InternalServerException", "broken")))
    whole = await joined.whole()

    assert whole.failure is not None
    assert whole.failure.message == "broken"


async def test_a_stream_that_is_too_long_is_given_up_at_once() -> None:
    joined, request = asked(5)
    for _ in range(3):
        request.send(Chunk(b"abc", last=False))
    whole = await joined.whole()

    assert request.cancelled
    assert whole.status == 500
    assert whole.failure is not None
    assert "at least 6 bytes" in whole.failure.message
    assert "max_response_size (5 bytes)" in whole.failure.message
