"""Bounds on what clients can take: connections, time to send, and work on forms."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frontend.http_server import Start
from tests.frontend.test_patience import listening

from marserve.frontend.api import forms, hot_server
from marserve.frontend.errors import BadRequest

PREDICT = b"POST /predictions/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"
DESCRIBE = b"GET /models HTTP/1.1\r\nHost: h\r\n\r\n"
UNKNOWN = b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield reader, writer
    writer.close()


async def answer(connection: Connection, request: bytes) -> bytes:
    """One answer on a connection that stays open."""
    reader, writer = connection
    writer.write(request)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(size)


@pytest.mark.parametrize(
    ("surface", "request_"),
    [("inference", PREDICT), ("inference", UNKNOWN), ("management", DESCRIBE)],
)
async def test_one_connection_too_many(start: Start, surface: str, request_: bytes) -> None:
    async with listening(start, with_model=True, max_connections=2) as ports:
        port = ports[surface]
        async with connected(port) as first:
            async with connected(port) as second:
                usual = [await answer(each, request_) for each in (first, second)]
                async with connected(port) as third:
                    refused = await answer(third, request_)
                    end = await third[0].read()
                still = await answer(first, request_)
            async with asyncio.timeout(30):  # until the server has seen that the second is gone
                again = refused
                while again.startswith(b"HTTP/1.1 503 "):
                    async with connected(port) as fourth:
                        again = await answer(fourth, request_)

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 1\r\n" in refused
    assert b"\r\nConnection: close\r\n" in refused
    assert b"max_connections" in refused
    assert end == b""
    status = usual[0].split(b"\r\n")[0]
    assert status != refused.split(b"\r\n")[0]
    assert {each.split(b"\r\n")[0] for each in (*usual, still, again)} == {status}


@pytest.mark.parametrize(
    "head",
    [
        b"POST /predictions/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n",
        b"PUT /predictions/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n",
    ],
)
async def test_body_that_comes_for_ever(
    start: Start, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(hot_server, "_SWEEP_S", 0.05)
    async with (
        listening(start, with_model=True, receive_timeout=1.0) as ports,
        connected(ports["inference"]) as (reader, writer),
    ):
        begun = time.monotonic()
        writer.write(head)
        for _ in range(4):  # not to the end: bytes that nobody reads reset a connection
            writer.write(b"x")
            await asyncio.sleep(0.05)
        answered = await asyncio.wait_for(reader.read(), 30)
        took = time.monotonic() - begun

    assert answered.startswith(b"HTTP/1.1 408 ")
    assert b"not complete after 1 s: 4 bytes came" in answered
    assert took >= 1.0


FILES = """
import resource
from marserve.frontend.api.admission import most_connections

resource.setrlimit(resource.RLIMIT_NOFILE, (700, 900))
for wanted in (100, 300, 10_000):
    print(most_connections(wanted), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_more_connections_than_files() -> None:
    command = [sys.executable, "-c", FILES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["100 700 900", "300 812 900", "388 900 900"]
    assert (
        done.stderr == "max_connections: 388 of 10000 can be had: the process may open 900 files\n"
    )


@given(st.text("%4aF=+ \n\r\t_.zé", max_size=30).map(str.encode))
def test_values_are_decoded_as_the_library_decodes_them(value: bytes) -> None:
    parts, bodies = forms.parse_urlencoded(b"name=" + value)

    assert bodies == [unquote_to_bytes(value.replace(b"+", b" "))]
    assert parts[0].size == len(bodies[0])


def test_large_forms_do_not_stop_the_server() -> None:
    begun = time.process_time()
    _, bodies = forms.parse_urlencoded(b"a=" + b"%41+" * 1_600_000)
    took = time.process_time() - begun

    assert bodies == [b"A " * 1_600_000]
    assert took < 0.5  # 0.05 s or so; escape by escape it is ten times as much


def test_form_that_is_hardly_encoded() -> None:
    _, bodies = forms.parse_urlencoded(b"a=" + b"100% " * 10_000)

    assert bodies == [b"100% " * 10_000]
    with pytest.raises(BadRequest, match="more than 10000 percent signs"):
        forms.parse_urlencoded(b"a=" + b"%" * 6_000_000)
