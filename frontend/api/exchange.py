"""One HTTP request being answered, as the routes see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from aiohttp import web
from multidict import CIMultiDict

from marserve.frontend.api import http
from marserve.frontend.errors import BadRequest, ModelNotFound, ServeError
from marserve.frontend.types import Chunk
from marserve.frontend.v2.state import V2State
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.auth import TokenAuth
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.logs import AccessLog
    from marserve.frontend.metrics import Telemetry
    from marserve.frontend.registry import Registry
    from marserve.frontend.workflows.registry import Workflows

STALL_S = 60.0
"""A request or response body that makes no progress for so long is given up."""
SLICE_BYTES = 256 << 10
UNTYPED = ""
"""Content-Type of a response that is to have none; it keeps aiohttp from adding its own."""
_MAX_QUERY_FIELDS = 1000

T = TypeVar("T")


@dataclass
class Services:
    """What the routes work with.

    Args:
        started_at: Epoch seconds.

    Attributes:
        v2: What the open protocol keeps between requests.
    """

    config: ServerConfig
    registry: Registry
    telemetry: Telemetry
    auth: TokenAuth
    access_log: AccessLog
    workflows: Workflows
    started_at: float = field(default_factory=time.time)
    v2: V2State = field(init=False)

    def __post_init__(self) -> None:
        self.v2 = V2State(self.config)


class Exchange:
    """One request: its parameters, its body, and the making of its response.

    Args:
        request: As aiohttp received it.
        id: The request's id.
        services: What the routes work with.
        constant: Headers of every response.
    """

    def __init__(
        self, request: web.BaseRequest, id: str, services: Services, constant: http.Headers
    ) -> None:
        self.request = request
        self.id = id
        self.services = services
        self.constant = constant
        self.parameters: dict[str, str] = {}
        self.openapi: dict[str, Any] = {}
        self._body: Buffer | None = None

    @property
    def path(self) -> str:
        """The path as sent: percent-encoded, without the query."""
        target = self.request.raw_path
        return target.partition("?")[0] if target.startswith("/") else self.request.rel_url.raw_path

    @cached_property
    def query_pairs(self) -> list[tuple[str, str]]:
        """Decoded query parameters, in order.

        Raises:
            BadRequest: If there are too many.
        """
        text = self.request.rel_url.raw_query_string
        if not text:
            return []
        try:
            return parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError as error:
            raise BadRequest(f"The query has more than {_MAX_QUERY_FIELDS} fields.") from error

    @property
    def query(self) -> dict[str, str]:
        """Decoded query parameters; the first of equal names wins."""
        return dict(reversed(self.query_pairs))

    @property
    def model_name(self) -> str:
        """The path's model name.

        Raises:
            ModelNotFound: If no model can have such a name.
        """
        return checked_name(self.parameters["model"])

    @property
    def version(self) -> str | None:
        """The path's version, or None."""
        return self.parameters.get("version") or None

    def has_key(self, *kinds: str) -> bool:
        """Tells whether the request came with a valid key of one of these kinds."""
        given = self.request.headers.get("Authorization")
        for kind in kinds:
            with suppress(ServeError):
                self.services.auth.check(kind, given)
                return True
        return False

    async def read_body(self) -> Buffer:
        """Returns the whole body; also a second time.

        Raises:
            TooLarge: If it exceeds ``max_request_size``; what follows of it is not read.
            SlowBody: If it stops coming, or comes for too long.
        """
        if self._body is None:
            self._body = await self._receive()
        return self._body

    async def _receive(self) -> Buffer:
        receive_s = self.services.config.receive_timeout
        end = time.monotonic() + receive_s
        limit = self.services.config.max_request_size
        check_declared(self.request, limit)
        content = self.request.content
        if content.is_eof():
            data = b"" if content.at_eof() else content.read_nowait(-1)
            http.check_size(len(data), limit)
            return data
        body = bytearray()
        while True:
            left_s = max(0.0, end - time.monotonic())
            try:
                data = await asyncio.wait_for(content.readany(), min(STALL_S, left_s))
            except web.RequestPayloadError as error:
                raise BadRequest(f"Invalid HTTP message. The body is malformed: {error}") from error
            except TimeoutError as error:
                if left_s < STALL_S:
                    raise http.SlowBody.endless(len(body), receive_s) from error
                raise http.SlowBody.stopped(len(body), STALL_S) from error
            if not data:
                return body
            body += data
            http.check_size(len(body), limit)

    @staticmethod
    async def finish(work: Coroutine[Any, Any, T]) -> T:
        """Runs work to its end, even if the client goes away meanwhile: no half-done state."""
        task = asyncio.ensure_future(work)
        _running.add(task)
        task.add_done_callback(_finished)
        return await asyncio.shield(task)

    def json(self, value: object, status: int = 200) -> web.Response:
        """Returns a JSON response."""
        return self.response(
            Chunk(http.json_body(value), status, headers={"Content-Type": http.JSON_TYPE})
        )

    def status(self, message: str, status: int = 200) -> web.Response:
        """Returns the response of a management call that has only a text to say."""
        return self.json({"status": message}, status)

    def response(self, chunk: Chunk) -> web.Response:
        """Returns the response that consists of this chunk alone."""
        head = http.render_head(chunk, self.id, self.constant)
        body = http.render_body(chunk)
        if isinstance(body, memoryview):
            body = bytes(body)
        return web.Response(
            body=body, status=head.status, reason=head.phrase or None, headers=_typed(head)
        )

    def stream(self, chunk: Chunk) -> web.StreamResponse:
        """Returns a response that begins as this chunk says; its body follows piece by piece."""
        head = http.render_head(chunk, self.id, self.constant)
        return web.StreamResponse(
            status=head.status, reason=head.phrase or None, headers=_typed(head)
        )

    async def send_large(self, chunk: Chunk) -> web.StreamResponse:
        """Sends a large body in slices; a client that stops reading does not hold it for long."""
        response = self.stream(chunk)
        body = memoryview(http.render_body(chunk))
        response.content_length = len(body)
        await response.prepare(self.request)
        for begin in range(0, len(body), SLICE_BYTES):
            await self.write(response, body[begin : begin + SLICE_BYTES])
        await response.write_eof()
        return response

    async def write(self, response: web.StreamResponse, data: Buffer) -> None:
        """Sends a piece of a body; breaks the connection off if the client does not take it."""
        try:
            await asyncio.wait_for(response.write(data), STALL_S)
        except TimeoutError as error:
            if self.request.transport is not None:
                self.request.transport.abort()
            raise ConnectionResetError("the client stopped reading") from error


def _typed(head: http.Head) -> CIMultiDict[str]:
    headers = CIMultiDict(head.headers)
    headers.setdefault("Content-Type", UNTYPED)
    return headers


_running: set[asyncio.Future[Any]] = set()


def _finished(task: asyncio.Future[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, as its caller may be gone


def check_declared(request: web.BaseRequest, limit: int) -> None:
    """Refuses a body by its Content-Length, before any of it is read.

    Raises:
        TooLarge: If it announces more than ``limit`` bytes.
    """
    if request.content_length is not None:
        http.check_size(request.content_length, limit)


def checked_name(name: str) -> str:
    """Returns a model name that has the form of one.

    Raises:
        ModelNotFound: If it has not; no model can have been registered by such a name.
    """
    if not http.MODEL_NAME.fullmatch(name):
        raise ModelNotFound(f"Model not found: {name[:100]}")
    return name
