"""Calls being answered: what all of them have in common, whatever the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from marserve.frontend.api.http import new_request_id
from marserve.frontend.errors import BadRequest, InternalError, ServeError, ServiceUnavailable
from marserve.frontend.grpc.statuses import AnswerFailed, code_of, number

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services

_log = logging.getLogger(__name__)

Context = Any
"""A ``grpc.aio.ServicerContext``, whose types differ between the kinds of methods."""
Work = Callable[[Any, Context, str], Awaitable[Any]]
"""Answers a call, given the message or messages, the context and the request's id."""
Codec = Callable[[Any], Any] | None
"""From or to bytes; None where a method takes or gives the bytes themselves."""

Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
"""A method as grpc wants it."""

_CLIENT_GONE = 499
_INTERNAL = "The server failed on this request; see its log for request"


class Calls:
    """Makes methods of functions: their errors become statuses, and they are counted and logged.

    Args:
        services: What the functions work with.
        strict: Whether TorchServe's statuses count; it has one for most of what it refuses itself.
    """

    def __init__(self, services: Services, strict: bool = False) -> None:
        self._services = services
        self._strict = strict

    def unary(self, name: str, work: Work, decode: Codec, encode: Codec) -> Method:
        """Makes a method of one message in and one out, which ``work`` returns."""
        handler = self._answered(name, work, partial(_one, decode))
        return grpc.unary_unary_rpc_method_handler(handler, None, encode)

    def stream(self, name: str, work: Work, decode: Codec, encode: Codec) -> Method:
        """Makes a method of one message in; ``work`` writes those that go out to the context."""
        handler = self._answered(name, work, partial(_one, decode))
        return grpc.unary_stream_rpc_method_handler(handler, None, encode)

    def duplex(self, name: str, work: Work, decode: Codec, encode: Codec) -> Method:
        """Makes a method of many messages in; ``work`` writes those that go out to the context."""
        handler = self._answered(name, work, partial(_each, decode))
        return grpc.stream_stream_rpc_method_handler(handler, None, encode)

    def refusal(self, name: str, error: ServeError) -> Method:
        """Makes a method that answers with an error, before any message is read."""

        async def refuse(_messages: Any, _context: Context, _id: str) -> None:
            raise error

        return self.duplex(name, refuse, None, None)

    def _answered(
        self, name: str, work: Work, decode: Callable[[Any], Any]
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        async def answer(message: Any, context: Context) -> Any:
            begun, id = perf_counter(), new_request_id()
            status, code = _CLIENT_GONE, grpc.StatusCode.CANCELLED
            try:
                context.set_trailing_metadata((("x-request-id", id),))
                answered = await work(decode(message), context, id)
                status, code = 200, grpc.StatusCode.OK
                return answered
            except ServeError as error:
                status, code = error.status, self._code(error)
                await self._abort(context, id, code, error)
            except asyncio.CancelledError:
                raise  # the client is gone
            except Exception:
                if context.done():
                    return None  # it went while an answer was written
                _log.exception("request %s: %s failed", id, name)
                status, code = 500, grpc.StatusCode.INTERNAL
                await self._abort(context, id, code, InternalError(f"{_INTERNAL} {id}."))
            finally:
                self._record(name, context, status, code, perf_counter() - begun)

        return answer

    def _code(self, error: ServeError) -> grpc.StatusCode:
        own = not isinstance(error, AnswerFailed)
        if self._strict and own and (error.status == 404 or isinstance(error, ServiceUnavailable)):
            return grpc.StatusCode.INTERNAL
        return code_of(error)

    async def _abort(
        self, context: Context, id: str, code: grpc.StatusCode, error: ServeError
    ) -> None:
        extra = [("x-request-id", id)]
        if error.retry_after_s is not None:
            extra.append(("grpc-retry-pushback-ms", str(error.retry_after_s * 1000)))
        await context.abort(code, error.message, tuple(extra))

    def _record(
        self, name: str, context: Context, status: int, code: grpc.StatusCode, seconds: float
    ) -> None:
        self._services.telemetry.response(status)
        remote = _remote(context.peer())
        log = self._services.access_log
        log.write(remote, "gRPC", name, "HTTP/2.0", number(code), seconds * 1e3)


def _one(decode: Codec, message: bytes) -> Any:
    """Not left to grpc: what is no message is the client's mistake, and told so."""
    if decode is None:
        return message
    try:
        return decode(message)
    except DecodeError:
        raise BadRequest(f"The {len(message)} bytes of the request are no such message.") from None


async def _each(decode: Codec, messages: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for message in messages:
        yield _one(decode, message)


@lru_cache(1024)  # a connection has many calls
def _remote(peer: str) -> str:
    """The address of a peer without its port: from ``ipv4:10.0.0.1:50000``."""
    kind, _, rest = peer.partition(":")
    if not kind.startswith("ipv"):
        return "unix"
    return unquote(rest.rpartition(":")[0]).strip("[]")
