"""The one request type and the one stream of chunks that every surface uses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from marserve.worker.wire import Buffer, Failure, Part


class Chunk:
    """A piece of an answer; a unary answer is one chunk with ``last``.

    Args:
        status: HTTP status of the answer; the first chunk's counts.
        headers: Response headers that the handler set.
        failure: Set if the request failed; ``body`` is empty then.
        tail: What follows the body, uncopied; only the way of ``api.hot`` writes it.
    """

    __slots__ = ("body", "failure", "headers", "last", "phrase", "status", "tail")

    def __init__(
        self,
        body: Buffer = b"",
        status: int = 200,
        *,
        phrase: str = "",
        headers: dict[str, str] | None = None,
        last: bool = True,
        failure: Failure | None = None,
        tail: Sequence[Buffer] = (),
    ) -> None:
        self.body = body
        self.status = status
        self.phrase = phrase
        self.headers = headers or {}
        self.last = last
        self.failure = failure
        self.tail = tail


class Sink(Protocol):
    """Where the chunks of one request go, called from the event loop; must not block."""

    def send(self, chunk: Chunk) -> None:
        """Takes the next chunk, or the only one."""


class InferenceRequest:
    """One request for one model, from whatever surface it came.

    Args:
        id: Unique id, sent back as ``x-request-id``.
        command: ``predict``, ``explain`` or ``describe``.
        headers: The client's, plus those that the server adds.
        parts: What the body consists of; ``bodies`` holds the bytes of each, in the same order.
        sink: Receives the answer.
        timeout_s: The client's own time limit from now on, queueing included; None for the model's.
        pinned: Whether the client named the version, rather than taking the default one.
        rows: How much of a batch it fills: the rows that it carries.
        priority: 1 is served first; 0 for what the header or the model says.
    """

    __slots__ = (
        "answered",
        "attempts",
        "bodies",
        "cancelled",
        "command",
        "deadline",
        "headers",
        "id",
        "on_cancel",
        "parts",
        "pinned",
        "priority",
        "queued_at",
        "rows",
        "sent_at",
        "sink",
        "streamed",
        "timeout_s",
    )

    def __init__(
        self,
        id: str,
        command: str,
        headers: dict[str, str],
        parts: list[Part],
        bodies: list[Buffer],
        sink: Sink,
        timeout_s: float | None = None,
        pinned: bool = False,
        rows: int = 1,
        priority: int = 0,
    ) -> None:
        self.id = id
        self.command = command
        self.headers = headers
        self.parts = parts
        self.bodies = bodies
        self.sink = sink
        self.timeout_s = timeout_s
        self.pinned = pinned
        self.rows = rows
        self.priority = priority
        self.cancelled = False
        self.on_cancel: Callable[[InferenceRequest], None] | None = None
        self.answered = False
        self.streamed = False
        self.attempts = 0
        self.queued_at = self.sent_at = 0.0
        self.deadline = float("inf")

    def send(self, chunk: Chunk) -> None:
        """Hands a chunk to the caller, unless the caller is gone or was already answered."""
        if self.answered:
            return
        self.answered = chunk.last
        self.streamed = True
        if not self.cancelled:
            self.sink.send(chunk)

    def cancel(self) -> None:
        """The caller is gone: what is queued is skipped, what comes is dropped."""
        self.cancelled = True
        if self.on_cancel is not None:
            self.on_cancel(self)


class ChunkStream:
    """A sink that a coroutine reads: ``async for chunk in stream``, or ``await stream.first()``."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False

    def send(self, chunk: Chunk) -> None:
        """Takes the next chunk."""
        self._chunks.append(chunk)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> ChunkStream:
        return self

    async def __anext__(self) -> Chunk:
        if self._ended:
            raise StopAsyncIteration
        if not self._chunks:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        chunk = self._chunks.popleft()
        self._ended = chunk.last
        return chunk
