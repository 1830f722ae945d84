"""Bodies received in place: whole whatever the pieces, and no more memory than what has come."""

from __future__ import annotations

import sys
from itertools import cycle

import pytest

from marserve.frontend.api.body import ArrivingBody

MIB = 1 << 20


def fill(body: ArrivingBody, data: bytes, pieces: list[int]) -> bytearray:
    """Writes the rest of a body as a socket does, in pieces of at most these sizes."""
    for piece in cycle(pieces):
        room = body.room()
        count = min(piece, len(room))
        room[:count] = data[body.received : body.received + count]
        del room
        whole = body.take(count)
        if whole is not None:
            return whole
    raise AssertionError


@pytest.mark.parametrize("size", [2, 70_000, MIB, MIB + 1, 5 * MIB + 7])
@pytest.mark.parametrize("pieces", [[1 << 30], [65_536], [3 * MIB, 1, 99_999]])
def test_a_body_is_whole_whatever_its_pieces(size: int, pieces: list[int]) -> None:
    data = bytes(range(256)) * (size // 256 + 1)

    whole = fill(ArrivingBody(size, data[:1]), data[:size], pieces)

    assert data[:size] == whole


def test_nothing_is_written_beyond_the_body() -> None:
    body = ArrivingBody(10, b"abc")

    assert 7 == len(body.room())
    assert body.take(6) is None
    assert 1 == len(body.room())


def test_an_announcement_alone_takes_little() -> None:
    body = ArrivingBody(1 << 40, b"x")
    at_first = sys.getsizeof(body._data)
    for _ in range(4):
        count = len(room := body.room())
        del room
        body.take(count)

    assert at_first < 1.2 * MIB
    assert sys.getsizeof(body._data) < 1.2 * max(MIB, body.received)
    assert len(body.room()) <= body.received
