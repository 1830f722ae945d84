"""Clients that mean ill: what they can make the server do is bounded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.frontend.http2.wires import (
    DATA,
    GOAWAY,
    HEAD,
    HEADERS,
    MORE,
    PING,
    PRIORITY,
    RST,
    SETTINGS,
    WINDOW,
    Echo,
    frame,
    number,
    request,
    served,
    setting,
)

from marserve.frontend.http2.blocks import Blocks
from marserve.frontend.http2.budget import Budget
from marserve.frontend.http2.errors import Code, ConnectionFault
from marserve.frontend.http2.hpack import Field, encode
from marserve.frontend.http2.inbox import Inbox
from marserve.frontend.http2.outbox import Outbox

CALM = Code.ENHANCE_YOUR_CALM


def resets() -> bytes:
    """Streams that are opened and cut (CVE-2023-44487)."""
    return b"".join(
        frame(HEADERS, 4, n, HEAD) + frame(RST, 0, n, number(8)) for n in range(1, 6001, 2)
    )


def mistakes() -> bytes:
    """Streams that the server has to cut (CVE-2025-8671)."""
    return b"".join(
        frame(HEADERS, 4, n, HEAD) + frame(WINDOW, 0, n, number(0)) for n in range(1, 6001, 2)
    )


FLOODS = {
    "resets": resets(),
    "mistakes": mistakes(),
    "pings": frame(PING, 0, 0, bytes(8)) * 6000,
    "settings": setting(4, 100) * 6000,
    "empty settings": frame(SETTINGS) * 6000,
    "priorities": frame(PRIORITY, 0, 1, bytes(5)) * 6000,
    "empty data": frame(HEADERS, 4, 1, HEAD) + frame(DATA, 0, 1) * 6000,
    "tiny windows": frame(WINDOW, 0, 0, number(1)) * 6000,
    "unknown frames": frame(99) * 6000,
    "late data": request(1) + frame(DATA, 0, 1) * 6000,
    "continuation": frame(HEADERS, 0, 1, HEAD) + frame(MORE, 0, 1, b"\x00\x01a\x01b") * 6000,
    "empty continuation": frame(HEADERS, 0, 1, HEAD) + frame(MORE, 0, 1) * 6000,
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_ends_its_connection(name: str) -> None:
    async with served() as (peer, _):
        peer.greet(FLOODS[name])
        assert CALM == (await peer.until(GOAWAY)).code


async def test_many_answered_requests_are_no_flood() -> None:
    async with served() as (peer, _):
        peer.greet()
        for first in range(1, 20_001, 2000):
            numbers = range(first, first + 2000, 2)
            ask = b"".join(
                request(n) + frame(WINDOW, 0, 0, number(1)) + frame(PING, 0, 0, bytes(8))
                for n in numbers
            )
            peer.send(ask)
            for n in numbers:
                assert b"x" == await peer.answer(n)


async def test_a_client_that_reads_nothing_holds_little() -> None:
    echo = Echo(bytes(64 << 20))
    async with served(echo) as (peer, listener):
        peer.greet(setting(4, 2**31 - 1), frame(WINDOW, 0, 0, number(2**31 - 1 - 65_535)))
        peer.send(request(1), request(3))
        [connection] = listener._connections
        while not connection.out.paused:  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.01)

        assert connection.out.unsent < 4 << 20
        body = await peer.answer(1)
        assert 64 << 20 == len(body)


class Sunk:
    """A transport that keeps nothing."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)

    def writelines(self, pieces: Any) -> None:
        for piece in pieces:
            self.write(piece)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass


kinds = st.integers(0, 11)
numbers = st.sampled_from([0, 1, 1, 1, 3, 3, 5, 2, 2**31 - 1])
payloads = st.one_of(
    st.binary(max_size=20),
    st.just(HEAD),
    st.sampled_from([number(0), number(1), number(2**31 - 1), bytes(8), bytes(6), b""]),
)
made = st.builds(frame, kinds, st.integers(0, 255), numbers, payloads)


@settings(max_examples=300, deadline=None)
@given(st.lists(made, max_size=25), st.integers(1, 30))
def test_no_frames_do_harm(sent: list[bytes], cut: int) -> None:
    costs, echo, sunk = Budget(0.0), Echo(), Sunk()
    out = Outbox(costs)
    out.open(sunk)
    inbox = Inbox(echo, out, costs, 3, lambda: None)
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"".join(sent)
    with suppress(ConnectionFault):
        for at in range(0, len(data), cut):
            inbox.feed(data[at : at + cut])

    assert len(inbox.streams) <= 3
    assert all(stream.open for stream in inbox.streams.values())
    assert out.window <= 2**31 - 1
    assert sunk.size < 100_000


def test_blocks_that_are_kept_are_few_and_short() -> None:
    read: list[object] = []

    def understand(fields: list[Field] | None) -> object:
        read.append(fields)
        return fields

    blocks = Blocks(understand)

    def take(block: bytes) -> None:
        assert blocks.take(HEADERS, 4, 1, block)
        blocks.head()

    long = encode([(b"x", bytes(5000))])
    for each in (HEAD, HEAD, long, long):
        take(each)
    assert 3 == len(read)
    for index in range(100):
        take(encode([(b"x", str(index).encode())]))

    assert len(blocks._known) <= 16
