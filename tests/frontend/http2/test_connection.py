"""Connections over real sockets: what is wrong ends them, what is right is answered."""

from __future__ import annotations

import asyncio
import struct

import pytest
from tests.frontend.http2.wires import (
    DATA,
    GOAWAY,
    HEAD,
    HEADERS,
    MORE,
    PING,
    PRIORITY,
    PUSH,
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

from marserve.frontend.http2.errors import Code

BIG = 2**31 - 1
FIRST_WINDOW, FRAME_SIZE = 4, 5


async def test_requests_are_answered_also_when_they_come_byte_by_byte() -> None:
    async with served() as (peer, _):
        peer.greet()
        for byte in request(1, b"slowly"):
            peer.send(bytes([byte]))
            await asyncio.sleep(0)
        assert b"slowly" == await peer.answer(1)
        peer.send(request(3, b"next"), request(5, b"and next"))
        assert [b"next", b"and next"] == [await peer.answer(3), await peer.answer(5)]


async def test_a_block_in_several_frames_with_padding_and_priority() -> None:
    async with served() as (peer, _):
        begin = frame(HEADERS, 0x28, 1, b"\x02" + bytes(5) + HEAD[:4] + bytes(2))
        peer.greet(begin, frame(MORE, 0, 1, HEAD[4:9]), frame(MORE, 4, 1, HEAD[9:]))
        peer.send(frame(DATA, 9, 1, b"\x03body" + bytes(3)))
        assert b"body" == await peer.answer(1)


FAULTS = {
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n", Code.PROTOCOL_ERROR),
    "data of the connection": (frame(DATA, 0, 0, b"x"), Code.PROTOCOL_ERROR),
    "data of an idle stream": (frame(DATA, 0, 1, b"x"), Code.PROTOCOL_ERROR),
    "a stream of the server": (request(2), Code.PROTOCOL_ERROR),
    "headers of the connection": (frame(HEADERS, 4, 0, HEAD), Code.PROTOCOL_ERROR),
    "continuation of nothing": (frame(MORE, 4, 1, HEAD), Code.PROTOCOL_ERROR),
    "an interrupted block": (frame(HEADERS, 0, 1, HEAD) + frame(PING, 0, 0, bytes(8)), 1),
    "data in a block": (frame(HEADERS, 0, 1, HEAD) + frame(DATA, 0, 1, b"x"), 1),
    "continuation of another": (frame(HEADERS, 0, 1, HEAD) + frame(MORE, 4, 3, HEAD), 1),
    "no header block": (frame(HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\xff"), 9),
    "a field of no number": (frame(HEADERS, 4, 1, b"\x80"), Code.COMPRESSION_ERROR),
    "a long frame": (b"\x20\x00\x00" + frame(DATA, 0, 1)[3:], Code.FRAME_SIZE_ERROR),
    "settings of five bytes": (frame(SETTINGS, 0, 0, b"12345"), Code.FRAME_SIZE_ERROR),
    "settings of a stream": (frame(SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
    "settings acknowledged at length": (frame(SETTINGS, 1, 0, bytes(6)), Code.FRAME_SIZE_ERROR),
    "a window too large": (setting(FIRST_WINDOW, 2**31), Code.FLOW_CONTROL_ERROR),
    "frames too small": (setting(FRAME_SIZE, 100), Code.PROTOCOL_ERROR),
    "push": (frame(PUSH, 4, 1, number(2) + HEAD), Code.PROTOCOL_ERROR),
    "a ping of a stream": (frame(PING, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "growth by nothing": (frame(WINDOW, 0, 0, number(0)), Code.PROTOCOL_ERROR),
    "growth without end": (frame(WINDOW, 0, 0, number(BIG)), Code.FLOW_CONTROL_ERROR),
    "growth of an idle stream": (frame(WINDOW, 0, 7, number(1)), Code.PROTOCOL_ERROR),
    "an idle stream cut": (frame(RST, 0, 7, number(8)), Code.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_ends_its_connection_and_no_other(name: str) -> None:
    data, code = FAULTS[name]
    async with served() as (peer, _):
        if name == "another protocol":
            peer.send(data)
        else:
            peer.greet(data)
        assert code == (await peer.until(GOAWAY)).code
        while await peer.next() is not None:
            pass


STREAM_FAULTS = {
    "growth by nothing": (frame(WINDOW, 0, 1, number(0)), Code.PROTOCOL_ERROR),
    "growth without end": (frame(WINDOW, 0, 1, number(BIG)), Code.FLOW_CONTROL_ERROR),
    "headers again": (frame(HEADERS, 4, 1, HEAD), Code.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
async def test_a_fault_of_a_stream_leaves_the_others(name: str) -> None:
    data, code = STREAM_FAULTS[name]
    echo = Echo()
    async with served(echo) as (peer, _):
        peer.greet(frame(HEADERS, 4, 1, HEAD), data)
        assert code == (await peer.until(RST, 1)).code
        peer.send(frame(DATA, 1, 1, b"too late"), request(3, b"fine"))
        assert b"fine" == await peer.answer(3)
        assert 1 == echo.gone


async def test_one_stream_more_than_allowed_is_refused() -> None:
    async with served(streams=2) as (peer, _):
        opening = (frame(HEADERS, 4, stream, HEAD) for stream in (1, 3, 5))
        peer.greet(*opening)
        assert Code.REFUSED_STREAM == (await peer.until(RST, 5)).code
        peer.send(frame(DATA, 1, 1, b"a"), frame(DATA, 1, 3, b"b"), request(7, b"c"))
        assert [b"a", b"b", b"c"] == [await peer.answer(n) for n in (1, 3, 7)]


async def test_a_client_that_sends_more_than_its_window() -> None:
    async with served() as (peer, _):
        peer.greet(frame(HEADERS, 4, 1, HEAD))
        for _ in range(17):  # the echo gives the room of a stream back, so that is never exceeded
            peer.send(frame(DATA, 0, 1, bytes(1 << 20)))
        await peer.until(WINDOW, 0)  # the window of the connection is given back as well


async def test_an_answer_takes_no_more_than_the_clients_window() -> None:
    body = bytes(range(256)) * 40
    async with served(Echo(body)) as (peer, _):
        peer.greet(setting(FIRST_WINDOW, 10), request(1))
        seen = await peer.until(DATA, 1)
        assert body[:10] == seen.payload
        found = seen.payload
        while len(found) < len(body):
            peer.send(frame(WINDOW, 0, 1, number(1000)))
            seen = await peer.until(DATA, 1)
            assert len(seen.payload) <= 1000
            found += seen.payload
        end = await peer.until(HEADERS, 1)
        assert body == found
        assert end.flags & 1


async def test_a_window_that_shrinks_below_nothing_and_grows_again() -> None:
    async with served(Echo(bytes(60))) as (peer, _):
        peer.greet(setting(FIRST_WINDOW, 50), request(1))
        assert 50 == len((await peer.until(DATA, 1)).payload)
        peer.send(setting(FIRST_WINDOW, 0), frame(WINDOW, 0, 1, number(45)))  # 5 below nothing
        peer.send(frame(PING, 0, 0, b"12345678"))
        assert PING == (await peer.until(PING)).kind  # and nothing of the stream before
        peer.send(frame(WINDOW, 0, 1, number(15)))
        assert 10 == len((await peer.until(DATA, 1)).payload)


async def test_streams_share_the_window_of_the_connection() -> None:
    body = bytes(60_000)
    async with served(Echo(body)) as (peer, _):
        peer.greet(setting(FIRST_WINDOW, 1 << 20), request(1), request(3))
        got = {1: 0, 3: 0}
        while sum(got.values()) < 65_535:
            seen = await peer.until(DATA)
            got[seen.stream] += len(seen.payload)
        peer.send(frame(WINDOW, 0, 0, number(1 << 20)))
        while sum(got.values()) < 120_000:
            seen = await peer.until(DATA)
            got[seen.stream] += len(seen.payload)

        assert {1: 60_000, 3: 60_000} == got


async def test_a_table_that_the_client_gives_up_is_given_up() -> None:
    async with served() as (peer, _):
        peer.greet(setting(1, 0), request(1))
        begin = await peer.until(HEADERS, 1)

        assert b"\x20\x88" == begin.payload[:2]


async def test_it_answers_pings_and_ignores_what_it_does_not_know() -> None:
    async with served() as (peer, _):
        peer.greet(frame(77, 255, 9, b"?"), frame(PRIORITY, 0, 9, bytes(5)))
        peer.send(setting(0x99, 1), frame(PING, 0, 0, b"12345678"))
        seen = await peer.until(PING)

        assert (1, b"12345678") == (seen.flags, seen.payload)


async def test_what_was_begun_is_answered_when_a_connection_leaves() -> None:
    async with served() as (peer, listener):
        peer.greet(frame(HEADERS, 4, 1, HEAD))
        await peer.until(SETTINGS)
        closing = asyncio.ensure_future(listener.close(10))
        assert BIG == struct.unpack(">I", (await peer.until(GOAWAY)).payload[:4])[0]
        await peer.until(PING)
        peer.send(request(3, b"sent meanwhile"), frame(PING, 1, 0, bytes(8)))
        assert b"sent meanwhile" == await peer.answer(3)
        assert 3 == struct.unpack(">I", (await peer.until(GOAWAY)).payload[:4])[0]
        peer.send(request(5, b"too late"), frame(DATA, 1, 1, b"in time"))
        assert b"in time" == await peer.answer(1)
        assert await peer.next() is None
        await closing


async def test_a_connection_beyond_the_limit_is_told_so() -> None:
    async with served(connections=0) as (peer, _):
        assert Code.ENHANCE_YOUR_CALM == (await peer.until(GOAWAY)).code
