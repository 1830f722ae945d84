"""Methods made of functions: what all have in common, whatever the service."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from marserve.frontend.errors import (
    BadRequest,
    InternalError,
    ServeError,
    ServiceUnavailable,
)
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.ledger import Ledger
from marserve.frontend.grpc.statuses import AnswerFailed, Status, code_of
from marserve.frontend.grpc.talk import Talk
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services

_log = logging.getLogger(__name__)

Work = Callable[[Any, Call, str], Awaitable[Any]]
"""Answers a call, given the message or messages, the call and its request's id."""
Codec = Callable[[Any], Any] | None
"""From or to bytes; None where a method takes or gives the bytes themselves."""
Start = Callable[[Call, Buffer], None]
"""Begins to answer a call, given the bytes of its message; raises what it cannot begin."""

_INTERNAL = "The server failed on this request; see its log for request"


@dataclass(frozen=True, slots=True)
class Method:
    """A method.

    Args:
        name: Its full name, such as ``/package.Service/Method``.
        one: Whether it takes one message, rather than a stream of them.
        start: Called with the message, when the client has sent all; with none for a stream.
    """

    name: str
    one: bool
    start: Start


class Calls:
    """Makes methods of functions: their errors become statuses, and they are counted and logged.

    Args:
        services: What the functions work with.
        strict: Whether TorchServe's statuses count; it has one for most of what it refuses itself.
        ledger: Of the server; None for one of its own.
    """

    def __init__(
        self, services: Services, strict: bool = False, ledger: Ledger | None = None
    ) -> None:
        self._services = services
        self._strict = strict
        self.limit = min(services.config.max_request_size, 2**31 - 1)
        self.ledger = Ledger(self.limit) if ledger is None else ledger
        self.receive_s = services.config.receive_timeout

    def quick(self, name: str, start: Start) -> Method:
        """Makes a method of one message in and one out that ``start`` answers without a task."""

        def begin(call: Call, message: Buffer) -> None:
            with self.failing(call):
                start(call, message)

        return Method(name, True, begin)

    def talk(self, name: str, begin: Callable[[Call], Talk]) -> Method:
        """Makes a method of many messages in and out that ``begin`` answers without a task."""

        def start(call: Call, _message: Buffer) -> None:
            call.listen(begin(call))

        return Method(name, False, start)

    def unary(self, name: str, work: Work, decode: Codec, encode: Codec) -> Method:
        """Makes a method of one message in and one out, which ``work`` returns."""

        async def answer(call: Call, message: Buffer) -> None:
            answered = await work(read(decode, message), call, call.id)
            out = answered if encode is None else encode(answered)
            call.finish((out,), len(out))

        return Method(name, True, self._in_task(answer))

    def stream(self, name: str, work: Work, decode: Codec) -> Method:
        """Makes a method of one message in; ``work`` writes those that go out to the call."""

        async def answer(call: Call, message: Buffer) -> None:
            await work(read(decode, message), call, call.id)
            call.close()

        return Method(name, True, self._in_task(answer))

    def duplex(self, name: str, work: Work, decode: Codec) -> Method:
        """Makes a method of many messages in; ``work`` writes those that go out to the call."""

        async def answer(call: Call, _message: Buffer) -> None:
            await work(_each(decode, call), call, call.id)
            call.close()

        return Method(name, False, self._in_task(answer))

    def code(self, error: ServeError) -> Status:
        """Returns the status of an error."""
        own = not isinstance(error, AnswerFailed)
        if self._strict and own and (error.status == 404 or isinstance(error, ServiceUnavailable)):
            return Status.INTERNAL
        return code_of(error)

    def record(self, call: Call, status: int, code: Status) -> None:
        """Counts a call that has ended, and logs it."""
        self._services.telemetry.response(status)
        took_ms = (time.monotonic() - call.begun) * 1e3
        log = self._services.access_log
        name = call.method.name.removeprefix("/")
        log.write(call.remote, "gRPC", name, "HTTP/2.0", int(code), took_ms)

    def _in_task(self, answer: Callable[[Call, Buffer], Awaitable[None]]) -> Start:
        async def run(call: Call, message: Buffer) -> None:
            with self.failing(call):
                await answer(call, message)

        return lambda call, message: call.work(run(call, message))

    @contextmanager
    def failing(self, call: Call) -> Iterator[None]:
        """Turns errors into the end of a call; being cancelled is none, the client is gone then."""
        try:
            yield
        except ServeError as error:
            call.lose(error)
        except Exception:
            self.broken(call)

    def broken(self, call: Call) -> None:
        """Ends a call because of the exception that is being handled; the log has it."""
        if call.alive:
            _log.exception("request %s: %s failed", call.id, call.method.name)
            call.lose(InternalError(f"{_INTERNAL} {call.id}."))


def read(decode: Codec, message: Buffer) -> Any:
    """Returns what bytes stand for.

    Raises:
        BadRequest: If they are no such message: that is the client's mistake.
    """
    if decode is None:
        return message
    try:
        return decode(message)
    except DecodeError:
        raise BadRequest(f"The {len(message)} bytes of the request are no such message.") from None


async def _each(decode: Codec, messages: AsyncIterator[Buffer]) -> AsyncIterator[Any]:
    async for message in messages:
        yield read(decode, message)
