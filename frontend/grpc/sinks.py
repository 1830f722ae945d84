"""Where the chunks of a call go: one answer, or pieces that a client takes at its own pace."""

from __future__ import annotations

from marserve.frontend.errors import TooLarge
from marserve.frontend.grpc.statuses import AnswerFailed
from marserve.frontend.joining import Joined
from marserve.frontend.types import Chunk, ChunkStream, InferenceRequest
from marserve.worker.wire import Buffer

_MAX_UNSENT_BYTES = 16 << 20  # of a stream whose client does not read


class OneAnswer(Joined):
    """Waits for an answer as a whole; ``await answer.body()``."""

    async def body(self) -> Buffer:
        """Returns the answer; the pieces of a streaming handler are joined.

        Raises:
            AnswerFailed: If it is an error.
        """
        chunk = await self.whole()
        if chunk.failure is not None:
            raise AnswerFailed(chunk)
        return chunk.body


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
