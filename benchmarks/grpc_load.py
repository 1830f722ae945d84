"""A load client for gRPC that costs little: one prepared call, replayed over HTTP/2.

    python benchmarks/grpc_load.py HOST:PORT /package.Service/Method FILE
        [--connections 1] [--streams 1] [--seconds 3]

FILE holds the message. What it sends are the frames that a gRPC client sends from its second call
on: fields that both sides have in their tables, and the message. Every answer must be a message of
the size of the first one. A real client costs as much as a quick server does, so it cannot show
what the server could do; this one takes about a tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, RST_STREAM = 0, 1, 4, 6, 7, 8, 3
END_STREAM, END_HEADERS, ACK = 1, 4, 1
OPEN_WINDOW = 2**31 - 1


def frame_head(size: int, kind: int, flags: int, stream: int) -> bytes:
    """The nine bytes before a payload."""
    return struct.pack(">IBI", size << 8 | kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One HTTP/2 frame."""
    return frame_head(len(payload), kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A field that both sides keep in their tables from now on."""
    assert len(name) < 127
    assert len(value) < 127
    return b"\x40" + bytes([len(name)]) + name + bytes([len(value)]) + value


@dataclass
class Result:
    """What a load came to."""

    seconds: float = 0.0
    calls: int = 0
    failures: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def line(self) -> str:
        """One line for people."""
        ordered = sorted(self.latencies_s)
        pick = [ordered[int(len(ordered) * share)] * 1e6 for share in (0.5, 0.99)]
        rate = self.calls / self.seconds
        times = f"p50 {pick[0]:7.0f} us  p99 {pick[1]:7.0f} us"
        return f"{rate:9.0f}/s  {times}  failed {self.failures}"


class Connection(asyncio.Protocol):
    """Keeps so many streams busy."""

    def __init__(self, path: bytes, authority: bytes, message: bytes, streams: int) -> None:
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path),
            (b":authority", authority),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", b"load"),
        ]
        self._first = b"".join(literal(*each) for each in fields)
        self._again = bytes(0x80 | 62 + i for i in reversed(range(len(fields))))
        body = b"\0" + struct.pack(">I", len(message)) + message
        self._body = memoryview(body)
        self._window = 65535  # what the server takes on the connection
        self._stream_window = 65535  # and at first on a stream
        self._most = 16384  # bytes a frame
        self._windows: dict[int, int] = {}
        self._unsent: dict[int, int] = {}
        self._streams = streams
        self._next = 1
        self._buffer = bytearray()
        self._begun: dict[int, float] = {}
        self._received: dict[int, int] = {}
        self._expected = 0
        self._consumed = 0
        self.result = Result()
        self.running = False
        self.idle = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        """Says who it is."""
        self._transport = transport
        settings = struct.pack(">HI", 4, OPEN_WINDOW)
        grow = struct.pack(">I", OPEN_WINDOW - 65535)
        begin = frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, grow)
        transport.write(PREFACE + begin)

    def start(self) -> None:
        """Opens the streams."""
        self.running = True
        self.idle.clear()
        for _ in range(self._streams):
            self._call()

    def _call(self) -> None:
        stream, self._next = self._next, self._next + 2
        block = self._again if stream > 1 else self._first
        head = frame(HEADERS, END_HEADERS, stream, block)
        self._begun[stream] = time.perf_counter()
        self._received[stream] = 0
        self._transport.write(head)
        self._windows[stream] = self._stream_window
        self._send(stream, 0)

    def _send(self, stream: int, at: int) -> None:
        """Sends what windows allow from there on."""
        body, window = self._body, self._windows[stream]
        while at < len(body):
            size = min(len(body) - at, self._most, self._window, window)
            if size <= 0:
                self._windows[stream] = window
                self._unsent[stream] = at
                return
            flags = END_STREAM if at + size == len(body) else 0
            self._transport.write(frame_head(size, DATA, flags, stream))
            self._transport.write(body[at : at + size])
            at += size
            window -= size
            self._window -= size

    def _grow(self, stream: int, size: int) -> None:
        if stream:
            if stream in self._windows:
                self._windows[stream] += size
        else:
            self._window += size
        waiting, self._unsent = self._unsent, {}
        for each, at in waiting.items():
            self._send(each, at)

    def _set(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == 4:
                for each in self._windows:
                    self._windows[each] += value - self._stream_window
                self._stream_window = value
            elif name == 5:
                self._most = min(value, 1 << 20)

    def data_received(self, data: bytes) -> None:
        """Takes answers, and asks again."""
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= 9:
            size = int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) - at < 9 + size:
                break
            kind, flags = buffer[at + 3], buffer[at + 4]
            stream = int.from_bytes(buffer[at + 5 : at + 9], "big")
            if kind == DATA:
                self._received[stream] += size
                self._consumed += size
            elif kind == WINDOW_UPDATE:
                self._grow(stream, int.from_bytes(buffer[at + 9 : at + 13], "big"))
            elif kind in (SETTINGS, PING) and not flags & ACK:
                payload = bytes(buffer[at + 9 : at + 9 + size])
                if kind == SETTINGS:
                    self._set(payload)
                self._transport.write(frame(kind, ACK, 0, payload if kind == PING else b""))
            elif kind == GOAWAY:
                raise SystemExit(f"GOAWAY {bytes(buffer[at + 9 : at + 9 + size])!r}")
            if kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
                self._answered(stream)
            at += 9 + size
        del buffer[:at]
        if self._consumed > 1 << 29:
            self._transport.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._consumed)))
            self._consumed = 0

    def _answered(self, stream: int) -> None:
        result = self.result
        result.latencies_s.append(time.perf_counter() - self._begun.pop(stream))
        size = self._received.pop(stream)
        del self._windows[stream]
        self._expected = self._expected or size
        result.calls += 1
        result.failures += not size or size != self._expected
        if self.running:
            self._call()
        elif not self._begun:
            self.idle.set()


async def load(
    address: tuple[str, int],
    path: str,
    message: bytes,
    connections: int,
    streams: int,
    seconds: float,
    warm_s: float = 0.5,
) -> Result:
    """Asks from so many connections with so many streams each; the first moments do not count."""
    loop, opened = asyncio.get_running_loop(), []
    authority = f"{address[0]}:{address[1]}".encode()
    for _ in range(connections):
        one = Connection(path.encode(), authority, message, streams)
        await loop.create_connection(lambda one=one: one, *address)  # type: ignore[misc]
        opened.append(one)
    await asyncio.sleep(0.1)  # the server's settings
    for each in opened:
        each.start()
    await asyncio.sleep(warm_s)
    for each in opened:
        each.result = Result()
    begun = time.perf_counter()
    await asyncio.sleep(seconds)
    whole = Result(time.perf_counter() - begun)
    for each in opened:
        whole.calls += each.result.calls
        whole.failures += each.result.failures
        whole.latencies_s += each.result.latencies_s
        each.running = False
    await asyncio.wait_for(asyncio.gather(*(each.idle.wait() for each in opened)), 10)
    for each in opened:
        each._transport.close()
    return whole


def main() -> None:
    """Loads one method and prints a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("path")
    parser.add_argument("file", type=Path)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    message = options.file.read_bytes()
    work = load(
        (host, int(port)),
        options.path,
        message,
        options.connections,
        options.streams,
        options.seconds,
    )
    print(f"{options.connections:4} x {options.streams:<4}{uvloop.run(work).line()}")


if __name__ == "__main__":
    main()
