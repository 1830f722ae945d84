"""Calls over real sockets, asked by grpc itself; what is behind them is plain functions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from tests.frontend.http2.wires import DATA, HEADERS, WINDOW, Peer, frame, number, setting

from marserve.frontend.errors import BadRequest, ServiceUnavailable
from marserve.frontend.grpc.calls import Calls
from marserve.frontend.grpc.directory import Directory
from marserve.frontend.grpc.framing import prefix
from marserve.frontend.http2.hpack import encode
from marserve.frontend.http2.listener import Limits, Listener

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
LIMIT_S = 30


def _break(_call: Any, _data: Any) -> None:
    raise ZeroDivisionError


class Service:
    """Methods that show what calls can do."""

    token = None

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.port = 0
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.methods = {
            "/t.T/Quick": calls.quick(
                "/t.T/Quick", lambda call, data: call.finish([data], len(data))
            ),
            "/t.T/Broken": calls.quick("/t.T/Broken", _break),
            "/t.T/Slow": calls.unary("/t.T/Slow", self._slow, None, None),
            "/t.T/Refused": calls.unary("/t.T/Refused", self._refused, None, None),
            "/t.T/Count": calls.stream("/t.T/Count", self._count, None),
            "/t.T/Echo": calls.duplex("/t.T/Echo", self._echo, None),
        }

    def drain(self) -> None:
        pass

    async def _slow(self, data: Any, _call: Any, _id: str) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            self.ended.put_nowait("slow")
        return data

    async def _refused(self, data: Any, _call: Any, _id: str) -> Any:
        if data == b"busy":
            raise ServiceUnavailable("Later.", retry_after_s=2)
        raise BadRequest("No: größer: > 5 %\n")

    async def _count(self, data: Any, call: Any, _id: str) -> None:
        try:
            for number in range(int(data)):
                await call.write(bytes([number % 256]) * 100_000)
        finally:
            self.ended.put_nowait("count")

    async def _echo(self, messages: Any, call: Any, _id: str) -> None:
        """Reads and writes in tasks of their own, each of which may wait."""
        waiting: asyncio.Queue[Any] = asyncio.Queue(4)

        async def write() -> None:
            while (message := await waiting.get()) is not None:
                await call.write(message)

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            async for message in messages:
                await waiting.put(message)
            await waiting.put(None)


@asynccontextmanager
async def served(**limits: Any) -> AsyncIterator[tuple[Service, Any]]:
    """The service, and a channel to it."""
    log: list[Any] = []
    services: Any = SimpleNamespace(
        config=SimpleNamespace(max_request_size=1_000_000, receive_timeout=60.0),
        telemetry=SimpleNamespace(response=log.append),
        access_log=SimpleNamespace(write=lambda *facts: log.append(facts)),
    )
    calls = Calls(services)
    service = Service(calls)
    auth: Any = SimpleNamespace(enabled=False)
    listener = Listener(Directory([service], "t", auth, calls), Limits(**limits))
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
    port = service.port = server.sockets[0].getsockname()[1]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", UNLIMITED) as channel:
        yield service, channel
    server.close()
    await listener.close(1)


async def test_messages_of_all_sizes_come_back() -> None:
    async with served() as (_, channel):
        quick = channel.unary_unary("/t.T/Quick")
        for size in (0, 1, 16_379, 16_384, 100_000, 1_000_000):
            body = bytes(range(256)) * (size // 256) + bytes(size % 256)
            assert body == await quick(body, timeout=LIMIT_S)
        answers = await asyncio.gather(*(quick(b"%d" % n, timeout=LIMIT_S) for n in range(300)))

    assert [b"%d" % n for n in range(300)] == answers


async def test_more_calls_than_a_connection_takes_wait_at_the_client() -> None:
    async with served(streams=3) as (_, channel):
        quick = channel.unary_unary("/t.T/Quick")
        answers = await asyncio.gather(*(quick(b"x" * n, timeout=LIMIT_S) for n in range(40)))

    assert list(range(40)) == [len(each) for each in answers]


async def failure(call: Any) -> tuple[Any, str, dict[str, Any]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caught.value
    return error.code(), error.details() or "", dict(error.trailing_metadata())


async def test_errors_are_statuses(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    async with served() as (_, channel):

        async def ask(name: str, data: bytes = b"") -> tuple[Any, str, dict[str, Any]]:
            return await failure(channel.unary_unary(f"/t.T/{name}")(data, timeout=LIMIT_S))

        refused, busy, broken = (
            await ask("Refused"),
            await ask("Refused", b"busy"),
            await ask("Broken"),
        )
        unknown, large = await ask("Nothing"), await ask("Quick", bytes(1_000_001))

    assert (grpc.StatusCode.INVALID_ARGUMENT, "No: größer: > 5 %\n") == refused[:2]
    assert "2000" == busy[2]["grpc-retry-pushback-ms"]
    assert (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL) == (busy[0], broken[0])
    assert broken[2]["x-request-id"] in broken[1]
    assert grpc.StatusCode.UNIMPLEMENTED == unknown[0]
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == large[0]
    assert "1000000" in large[1]


async def test_a_deadline_and_a_cancellation_end_the_work() -> None:
    async with served() as (service, channel):
        slow = channel.unary_unary("/t.T/Slow")
        late = await failure(slow(b"", timeout=0.1))
        assert "slow" == await asyncio.wait_for(service.ended.get(), LIMIT_S)
        call = channel.unary_stream("/t.T/Count")(b"100000", timeout=LIMIT_S)
        assert bytes(100_000) == await call.read()
        call.cancel()
        assert "count" == await asyncio.wait_for(service.ended.get(), LIMIT_S)

    assert grpc.StatusCode.DEADLINE_EXCEEDED == late[0]


async def test_questions_are_read_while_answers_wait_for_room() -> None:
    bodies = [bytes([number]) * 300_000 for number in range(60)]
    async with served() as (_, channel):
        call = channel.stream_stream("/t.T/Echo")(iter(bodies), timeout=LIMIT_S)
        answers = [answer async for answer in call]

    assert bodies == answers


async def test_messages_that_are_still_arriving_have_a_limit_together() -> None:
    block = encode(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/t.T/Quick"),
            (b"content-type", b"application/grpc"),
        ]
    )
    begun = prefix(900_000) + bytes(700_000)
    async with served() as (service, _):
        ledger, port = service.calls.ledger, service.port
        ledger.most = 1_000_000
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        peer = Peer(reader, writer)
        peer.greet(setting(4, 1 << 30), frame(WINDOW, 0, 0, number(1 << 30)))
        for stream in (1, 3):
            peer.send(frame(HEADERS, 4, stream, block), frame(DATA, 0, stream, begun))
        refused = await peer.until(HEADERS, 3)
        held = ledger.held
        peer.send(frame(DATA, 1, 1, bytes(200_000)))
        answer = await peer.answer(1)
        writer.close()

    assert b"grpc-status\x0214" in refused.payload
    assert 700_000 == held
    assert 0 == ledger.held
    assert prefix(900_000) + bytes(900_000) == answer
