"""Answers as a whole: the pieces of a handler that streams, put together up to a limit."""

from __future__ import annotations

import asyncio

from marserve.frontend.errors import InternalError
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.worker.wire import Buffer


class Joined:
    """A sink for callers that can take one answer alone; ``await joined.whole()``.

    Each piece of a stream is within ``max_response_size``, but there may be any number of them:
    what is put together in memory has the same limit as an answer that came at once.

    Args:
        most_bytes: ``max_response_size``.

    Attributes:
        request: Whose answer it is; given up when the limit is passed.
    """

    __slots__ = ("_first", "_future", "_most_bytes", "_pieces", "_size", "request")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._size = 0
        self._first: Chunk | None = None
        self._pieces: list[Buffer] = []
        self._future: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        self.request: InferenceRequest | None = None

    def send(self, chunk: Chunk) -> None:
        """Takes the next chunk, or the only one."""
        if self._future.done():
            return
        if chunk.failure is not None or (chunk.last and self._first is None):
            self._future.set_result(chunk)
            return
        self._first = self._first or chunk
        self._size += len(chunk.body)
        if self._size > self._most_bytes:
            self._refuse()
            return
        self._pieces.append(chunk.body)
        if chunk.last:
            first = self._first
            body = b"".join(self._pieces)
            whole = Chunk(body, first.status, phrase=first.phrase, headers=first.headers)
            self._future.set_result(whole)

    def _refuse(self) -> None:
        self._pieces.clear()
        if self.request is not None:
            self.request.cancel()
        text = (
            f"The response of at least {self._size} bytes, the pieces of a stream put together,"
            f" exceeds max_response_size ({self._most_bytes} bytes)."
        )
        self._future.set_result(InternalError(text).chunk())

    async def whole(self) -> Chunk:
        """Returns the answer: status and headers are those of its first piece."""
        return await self._future
