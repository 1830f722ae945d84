"""Many questions on one stream: asked as they come, answered in order within a sequence."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from marserve.frontend.api.http import new_request_id
from marserve.frontend.errors import ServeError, ServiceUnavailable
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.inference_pb2 import PredictionsRequest
from marserve.frontend.grpc.messages import (
    encode_error,
    encode_prediction,
    find_model,
    request_of,
)
from marserve.frontend.grpc.sinks import Pieces

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services

_MOST_UNANSWERED = 64  # questions of one stream; the next one is read when one of them is answered


class _Question:
    """A question and its answer: what came of submitting it, and the pieces that follow."""

    __slots__ = ("error", "message", "pieces")

    def __init__(self, message: PredictionsRequest) -> None:
        self.message = message
        self.pieces = Pieces()
        self.error: ServeError | None = None

    def cancel(self) -> None:
        request = self.pieces.request
        if request is not None and not request.answered:
            request.cancel()


class Conversation:
    """One stream of questions with its answers.

    Args:
        services: What it works with.
        call: Each of its questions has an id of its own.
    """

    def __init__(self, services: Services, call: Call) -> None:
        self._services = services
        self._call = call
        self._lanes: dict[str, deque[_Question]] = {}
        self._places = asyncio.Semaphore(_MOST_UNANSWERED)
        self._writing = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._draining = False
        self._broken: ServeError | None = None

    def drain(self) -> None:
        """Takes no more questions; those that were asked are answered."""
        self._draining = True
        if self._reader is not None:
            self._reader.cancel()

    async def run(self, messages: AsyncIterator[PredictionsRequest]) -> None:
        """Answers until the client has no more questions.

        Raises:
            BadRequest: If it sent what is no question; those before it are answered.
            ServiceUnavailable: If the server stopped before.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._reader = group.create_task(self._read(messages, group))
        finally:
            for lane in self._lanes.values():
                for question in lane:
                    question.cancel()
        if self._broken is not None:
            raise self._broken
        if self._draining:
            raise ServiceUnavailable("The server is being stopped.", retry_after_s=1)

    async def _read(
        self, messages: AsyncIterator[PredictionsRequest], group: asyncio.TaskGroup
    ) -> None:
        try:
            async for message in messages:
                await self._places.acquire()
                self._take(message, group)
        except ServeError as error:
            self._broken = error

    def _take(self, message: PredictionsRequest, group: asyncio.TaskGroup) -> None:
        question = self._ask(message)
        key = message.sequence_id
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = deque([question])
            group.create_task(self._answer(key))
        else:
            lane.append(question)

    def _ask(self, message: PredictionsRequest) -> _Question:
        question = _Question(message)
        try:
            model = find_model(message, self._services.registry)
            request = request_of(
                message,
                self._call,
                new_request_id(),
                question.pieces,
                self._services.config,
            )
            question.pieces.request = request
            model.submit(request)
        except ServeError as error:
            question.error = error
        return question

    async def _answer(self, key: str) -> None:
        """Answers the questions of one sequence, one after the other."""
        lane = self._lanes[key]
        while lane:
            question = lane[0]  # it stays in its lane until it is answered, so that it is cancelled
            try:
                if question.error is not None:
                    raise question.error
                async for body in question.pieces:
                    await self._write(b"".join(encode_prediction(body, question.message)))
            except ServeError as error:
                await self._write(encode_error(error, question.message))
            lane.popleft()
            self._places.release()
        del self._lanes[key]

    async def _write(self, message: bytes) -> None:
        async with self._writing:
            await self._call.write(message)
