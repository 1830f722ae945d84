"""Where the chunks of a call go: one answer, or pieces that a client takes at its own pace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from marserve.frontend.errors import InternalError, ServeError, TooLarge
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.statuses import AnswerFailed
from marserve.frontend.types import Chunk, ChunkStream, InferenceRequest
from marserve.worker.wire import Buffer

_MAX_UNSENT_BYTES = 16 << 20  # of a stream whose client does not read


class OneAnswer:
    """Answers a call with one message, once all of it is there.

    Args:
        call: To be answered.
        render: Makes a message of a chunk: pieces that belong together.
        most_bytes: Of the pieces of a streaming handler, which are joined: ``max_response_size``.
    """

    __slots__ = ("_call", "_most_bytes", "_pieces", "_render", "_size")

    def __init__(
        self, call: Call, render: Callable[[Chunk], Sequence[Buffer]], most_bytes: int
    ) -> None:
        self._call = call
        self._render = render
        self._most_bytes = most_bytes
        self._pieces: list[Buffer] = []
        self._size = 0

    def send(self, chunk: Chunk) -> None:
        """Takes the next chunk, or the only one."""
        try:
            if chunk.failure is not None:
                raise AnswerFailed(chunk)
            if self._pieces or not chunk.last:
                self._join(chunk)
            if chunk.last:
                message = self._render(chunk)
                self._call.finish(message, sum(map(len, message)))
        except ServeError as error:
            self._call.lose(error)
        except Exception:  # else it would be the worker's
            self._call.break_off()

    def _join(self, chunk: Chunk) -> None:
        self._pieces.append(chunk.body)
        self._size += len(chunk.body)
        if self._size > self._most_bytes:
            self._pieces.clear()
            raise InternalError(
                f"The response of at least {self._size} bytes, the pieces of a stream put together,"
                f" exceeds max_response_size ({self._most_bytes} bytes)."
            )
        if chunk.last:
            chunk.body = b"".join(self._pieces)


class Pieces:
    """Holds what a client has not taken yet, up to a limit; ``async for body in pieces``."""

    def __init__(self) -> None:
        self._stream = ChunkStream()
        self._unsent = 0
        self.request: InferenceRequest | None = None

    def send(self, chunk: Chunk) -> None:
        """Takes the next chunk; gives the stream up if the client falls behind too far."""
        self._unsent += len(chunk.body)
        behind = self._unsent > _MAX_UNSENT_BYTES and self._unsent > len(chunk.body)
        if behind and chunk.failure is None and self.request is not None:
            self.request.cancel()
            text = f"The client has not taken {self._unsent} bytes of its stream."
            chunk = TooLarge(text).chunk()
        self._stream.send(chunk)

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> Buffer:
        """Returns the next piece.

        Raises:
            AnswerFailed: If the rest is an error.
        """
        chunk = await anext(self._stream)
        self._unsent -= len(chunk.body)
        if chunk.failure is not None:
            raise AnswerFailed(chunk)
        return chunk.body
