"""Clients that are broken, hostile or unlucky."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator

import pytest
from tests.frontend.http_server import Start

from marserve.frontend.api import exchange


async def test_too_large_a_body_is_refused_before_it_is_sent(start: Start) -> None:
    server = await start(with_model=True, max_request_size=1000)
    answer = await server.raw(
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    head, _, body = answer.partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close" in head
    assert re.search(rb"1001 bytes.*limit is 1000 bytes.*max_request_size", body)


async def test_too_large_a_body_in_chunks(start: Start) -> None:
    server = await start(with_model=True, max_request_size=1000)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"x" * 100

    status, response, _ = await server.call("/predictions/echo", "POST", data=chunks())
    assert status == 413
    assert response.headers["Connection"] == "close"
    assert (await server.call("/predictions/echo", "POST", data=b"x" * 1000))[0] == 200


async def test_expectation_is_met(start: Start) -> None:
    server = await start(with_model=True)
    status, _, body = await server.call("/predictions/echo", "POST", data=b"abc", expect100=True)

    assert (status, json.loads(body)["row"]) == (200, {"body": "abc"})


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: 4\r\nConnection: close\r\n\r\nabcd",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
async def test_broken_requests_get_400(start: Start, data: bytes) -> None:
    server = await start(with_model=True)
    answer = await server.raw(data)

    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert b"Traceback" not in answer
    assert (await server.call("/ping"))[0] == 200


async def test_client_that_goes_away_is_forgotten(start: Start) -> None:
    server = await start(with_model=True)
    connection = socket.create_connection(("127.0.0.1", server.ports["inference"]))
    connection.sendall(
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc"
    )
    connection.close()

    assert (await server.call("/predictions/echo", "POST", data=b"next"))[0] == 200


async def test_body_that_stops_coming(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "STALL_S", 0.1)
    server = await start(with_model=True)
    answer = await server.raw(
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc"
    )

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"Connection: close" in answer
    assert b"stopped after 3 bytes" in answer


async def test_client_that_stops_reading(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exchange, "STALL_S", 0.1)
    server = await start(with_model=True)
    request = b"GET /predictions/echo HTTP/1.1\r\nHost: a\r\nsize: 6000000\r\n\r\n"
    received = 0
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.ports["inference"]))
        connection.sendall(request)
        assert await asyncio.to_thread(server.logged.wait, 30)
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1 << 20):
                received += len(data)

    assert received < 6_000_000
    assert "Traceback" not in caplog.text
    assert (await server.call("/ping"))[0] == 200
