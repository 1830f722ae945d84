"""HTTP/2 by hand: frames as bytes, and a client that reads them, for tests of the server's side."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from marserve.frontend.http2.hpack import STATUS_200, Field, encode
from marserve.frontend.http2.listener import Limits, Listener
from marserve.frontend.http2.stream import Stream

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, MORE = range(10)
LIMIT_S = 20.0
TRAILERS = encode([(b"end", b"yes")])
HEAD = encode([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/echo")])


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """A frame."""
    size = struct.pack(">I", len(payload))[1:]
    return size + struct.pack(">BBI", kind, flags, stream) + payload


def number(value: int) -> bytes:
    """Four bytes."""
    return struct.pack(">I", value)


def setting(name: int, value: int) -> bytes:
    """A SETTINGS frame with one setting."""
    return frame(SETTINGS, 0, 0, struct.pack(">HI", name, value))


def request(stream: int, body: bytes = b"x", path: bytes = HEAD) -> bytes:
    """A whole request."""
    return frame(HEADERS, 4, stream, path) + frame(DATA, 1, stream, body)


class Seen(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of a GOAWAY or RST_STREAM."""
        return int.from_bytes(self.payload[-4:] if self.kind == RST else self.payload[4:8], "big")


class Echo:
    """Answers with what came, when all of it has; or with ``answer``, at once."""

    def __init__(self, answer: bytes | None = None) -> None:
        self.answer = answer
        self.streams: list[Stream] = []
        self.gone = 0

    def read(self, fields: list[Field] | None) -> list[Field]:
        return fields or []

    def begin(self, stream: Stream, head: Any) -> _Echoing:
        self.streams.append(stream)
        return _Echoing(self, stream)


class _Echoing:
    def __init__(self, echo: Echo, stream: Stream) -> None:
        self._echo = echo
        self._stream = stream
        self._body = b""

    def data(self, piece: bytes) -> None:
        self._body += piece
        self._stream.credit(len(piece))

    def ended(self) -> None:
        body = self._body if self._echo.answer is None else self._echo.answer
        self._stream.whole(STATUS_200, [body], len(body), TRAILERS)

    def gone(self) -> None:
        self._echo.gone += 1

    def drained(self) -> None:
        pass

    def stalled(self, now: float) -> None:
        pass


class Peer:
    """A client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, *data: bytes) -> None:
        """Sends bytes."""
        self._writer.write(b"".join(data))

    def greet(self, *data: bytes) -> None:
        """Says that it speaks HTTP/2, then sends bytes."""
        self.send(PREFACE, frame(SETTINGS), *data)

    async def next(self) -> Seen | None:
        """The next frame; None at the end of the connection."""
        try:
            async with asyncio.timeout(LIMIT_S):
                head = await self._reader.readexactly(9)
                size = int.from_bytes(head[:3], "big")
                payload = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Seen(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)

    async def until(self, kind: int, stream: int | None = None) -> Seen:
        """The next frame of a kind, on a stream if one is named."""
        while (seen := await self.next()) is not None:
            if seen.kind == kind and stream in (None, seen.stream):
                return seen
        raise AssertionError(f"the connection ended without a frame of kind {kind}")

    async def answer(self, stream: int) -> bytes:
        """The body of a whole answer."""
        body = bytearray()
        while (seen := await self.next()) is not None:
            if seen.stream == stream:
                assert seen.kind in (DATA, HEADERS), seen
                body += seen.payload if seen.kind == DATA else b""
                if seen.flags & 1:
                    return bytes(body)
        raise AssertionError(f"the connection ended before stream {stream} did")


@asynccontextmanager
async def served(echo: Echo | None = None, **limits: Any) -> AsyncIterator[tuple[Peer, Listener]]:
    """A server and a client that is connected to it."""
    listener = Listener(echo or Echo(), Limits(**limits))
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Peer(reader, writer), listener
    finally:
        writer.close()
        server.close()
        await listener.close(0.1)
