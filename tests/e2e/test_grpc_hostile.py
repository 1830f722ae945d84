"""gRPC with clients that mean ill, by hand: others are served on, and nothing is left behind."""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from tests.e2e.grpc_clients import Clients, question
from tests.e2e.running import Running, running
from tests.frontend.http2.wires import (
    DATA,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST,
    SETTINGS,
    WINDOW,
    frame,
    number,
)

from marserve.frontend.http2.hpack import Decoder, encode

PATH = b"/org.pytorch.serve.grpc.inference.InferenceAPIsService/"
CALM, LIMIT_S = 11, 30
MOST = 1_000_000


def head(path: bytes = PATH + b"Predictions", *more: tuple[bytes, bytes]) -> bytes:
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b"te", b"trailers")]
    return encode([*fields, (b"content-type", b"application/grpc"), *more])


def message(model: str, body: bytes) -> bytes:
    data = question(model, body).SerializeToString()
    return b"\0" + struct.pack(">I", len(data)) + data


class Wire:
    """A connection by hand."""

    def __init__(self, server: Running) -> None:
        address = ("127.0.0.1", server.grpc_ports["inference"])
        self.socket = socket.create_connection(address, LIMIT_S)
        self.file = self.socket.makefile("rb")
        self.decoder = Decoder(1 << 20)
        self.send(PREFACE, frame(SETTINGS))

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, *data: bytes) -> None:
        self.socket.sendall(b"".join(data))

    def next(self) -> tuple[int, int, int, bytes]:
        begin = self.file.read(9)
        assert len(begin) == 9, "the connection ended"
        payload = self.file.read(int.from_bytes(begin[:3], "big"))
        return begin[3], begin[4], int.from_bytes(begin[5:9], "big"), payload

    def until(self, kind: int) -> bytes:
        while True:
            found, _, _, payload = self.next()
            if found == kind:
                return payload

    def ending(self, stream: int) -> dict[bytes, bytes]:
        """The last header block of a stream."""
        while True:
            kind, flags, found, payload = self.next()
            fields = dict(self.decoder.decode(payload) or []) if kind == HEADERS else {}
            if found == stream and flags & 1:
                return fields


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    properties = f"default_workers_per_model=1\nmax_request_size={MOST}"
    for server in running(tmp_path_factory.mktemp("hostile"), properties=properties):
        for name in ("echo", "slow"):
            server.pack(name, name)
        with Clients(server.start()) as made:
            yield made


@pytest.fixture
def wire(served: Clients) -> Iterator[Wire]:
    with Wire(served.server) as made:
        yield made
    assert b"alive" == served.predict("echo", "alive")
    assert "failed" not in served.server.console


def waiting(server: Running) -> Any:
    return server.describe("slow")["jobQueueStatus"]["pendingRequests"]


def test_streams_that_are_opened_and_cut(served: Clients, wire: Wire) -> None:
    """Each asks for half a minute; none keeps a place in the queue."""
    ask = message("slow", b"30")
    attack = (
        frame(HEADERS, 4, n, head()) + frame(DATA, 1, n, ask) + frame(RST, 0, n, number(8))
        for n in range(1, 8001, 2)
    )
    wire.send(*attack)
    goaway = wire.until(GOAWAY)

    assert CALM == int.from_bytes(goaway[4:8], "big")
    served.server.until(lambda: waiting(served.server) == 0, "places are taken")


def test_a_message_that_says_it_is_huge(wire: Wire) -> None:
    wire.send(frame(HEADERS, 4, 1, head()), frame(DATA, 0, 1, b"\0\xff\xff\xff\xff" + b"x"))
    ending = wire.ending(1)

    assert b"8" == ending[b"grpc-status"]
    assert str(MOST).encode() in ending[b"grpc-message"]


def test_a_small_message_that_becomes_huge(served: Clients, wire: Wire) -> None:
    bomb = gzip.compress(bytes(500 << 20), 9)
    assert served.server.process is not None
    wire.send(frame(HEADERS, 4, 1, head(PATH + b"Predictions", (b"grpc-encoding", b"gzip"))))
    body = b"\1" + struct.pack(">I", len(bomb)) + bomb
    for at in range(0, len(body), 16384):
        wire.send(frame(DATA, int(at + 16384 >= len(body)), 1, body[at : at + 16384]))
    ending = wire.ending(1)
    memory = max(p.memory_info().rss for p in family(served.server))

    assert b"8" == ending[b"grpc-status"]
    assert memory < 400 << 20


def family(server: Running) -> list[psutil.Process]:
    """The server's own processes, without its workers, which hold torch."""
    assert server.process is not None
    every = [psutil.Process(server.process.pid)]
    every += every[0].children(recursive=True)
    return [p for p in every if "marserve.frontend" in " ".join(p.cmdline())]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", b"3", b"no message"),
        (b"\0\0\0\0\x09abc", b"3", b"cut off"),
        (b"\0\0\0\0\0" * 2, b"3", b"second message"),
        (b"\1\0\0\0\1x", b"3", b"compressed"),
        (b"\7\0\0\0\1x", b"3", b"compressed"),
        (b"\0\0\0\0\1\xff", b"3", b"no such message"),
    ],
)
def test_bodies_that_are_no_message(wire: Wire, body: bytes, status: bytes, text: bytes) -> None:
    wire.send(frame(HEADERS, 4, 1, head()), frame(DATA, 1, 1, body))
    ending = wire.ending(1)

    assert status == ending[b"grpc-status"]
    assert text in ending[b"grpc-message"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(b"grpc-timeout", b"soon")], b"3"),
        ([(b"grpc-encoding", b"snappy")], b"12"),
        ([(b"x", bytes(1000))] * 60, b"8"),
    ],
)
def test_heads_that_cannot_be_served(
    wire: Wire, fields: list[tuple[bytes, bytes]], status: bytes
) -> None:
    block = head(PATH + b"Predictions", *fields)
    pieces = [block[at : at + 16000] for at in range(0, len(block), 16000)]
    last = len(pieces) - 1
    for index, piece in enumerate(pieces):
        kind = 9 if index else HEADERS
        wire.send(frame(kind, 4 if index == last else 0, 1, piece))
    ending = wire.ending(1)

    assert status == ending[b"grpc-status"]


def test_what_is_no_grpc_gets_a_status_of_http(wire: Wire) -> None:
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", PATH + b"Ping")]
    wire.send(frame(HEADERS, 5, 1, encode(fields)))

    assert {b":status": b"415"} == wire.ending(1)


def test_a_client_that_takes_an_answer_byte_by_byte_and_leaves(served: Clients, wire: Wire) -> None:
    wire.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1)))
    wire.send(frame(HEADERS, 4, 1, head()), frame(DATA, 1, 1, message("echo", bytes(100_000))))
    for _ in range(20):
        assert len(wire.until(DATA)) == 1
        wire.send(frame(WINDOW, 0, 1, number(1)))


def test_another_protocol_is_answered_and_closed(served: Clients) -> None:
    address = ("127.0.0.1", served.server.grpc_ports["inference"])
    with socket.create_connection(address, LIMIT_S) as plain:
        plain.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        said = b""
        while piece := plain.recv(65536):
            said += piece

    assert b"HTTP/2" in said
