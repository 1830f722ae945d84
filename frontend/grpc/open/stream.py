"""ModelStreamInfer: many questions on one stream, asked as they come, each with its answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from marserve.frontend.api.http import new_request_id
from marserve.frontend.errors import ServeError, ServiceUnavailable, TooLarge
from marserve.frontend.grpc.open.messages import Question, in_stream, parse, stream_error
from marserve.frontend.grpc.open.questions import find_model, surroundings
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.frontend.v2 import inference
from marserve.frontend.v2.answers import read_answer
from marserve.frontend.v2.questions import question as request_of
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.grpc.call import Call
    from marserve.frontend.model import Model

_MOST_UNANSWERED = 64  # questions of one stream; the next one is read when one of them is answered
_MOST_UNSENT_BYTES = 16 << 20  # of a stream whose client does not read
_NO_SEQUENCE = (None, 0, "")


class InferStream:
    """One stream, without a task: questions come in by callback, and answers go out by callback.

    Answers to questions without an id come in the order of the questions, so that the client can
    tell which is which; those of a sequence as well. Others come as soon as they are there.

    Args:
        services: What it works with.
        call: That it answers.
        open_streams: Of the service; it is among them until it ends.
    """

    def __init__(self, services: Services, call: Call, open_streams: set[InferStream]) -> None:
        self.services = services
        self.call = call
        self._others = open_streams
        self._lanes: dict[object, deque[_Slot]] = {}
        self._unanswered = 0
        self._ended = False
        self._draining = False
        open_streams.add(self)

    @property
    def ready(self) -> bool:
        """Whether another question can be taken."""
        return self._unanswered < _MOST_UNANSWERED and not self._draining

    def take(self, data: Buffer) -> None:
        """Takes a question; what is wrong with it is said in its answer."""
        self._unanswered += 1
        slot = _Slot(self)
        try:
            question = parse(data, self.services.v2.regions)
        except ServeError as error:
            self._lanes.setdefault("", deque()).append(slot)
            slot.fail(error)
            return
        slot.question, slot.lane = question, _lane(question)
        self._lanes.setdefault(slot.lane, deque()).append(slot)
        try:
            slot.ask(question)
        except ServeError as error:
            slot.fail(error)

    def ended(self) -> None:
        """The client asks nothing more."""
        self._ended = True
        self._close_if_done()

    def gone(self) -> None:
        """The client is gone: what was asked is given up."""
        self._others.discard(self)
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            for slot in lane:
                slot.cancel()

    def drain(self) -> None:
        """Takes no more questions; those that were asked are answered."""
        self._draining = True
        self._close_if_done()

    def moved(self, slot: _Slot) -> None:
        """A question has another answer: what is its turn is written."""
        lane = self._lanes.get(slot.lane)
        while lane and self.call.alive:
            first = lane[0]
            while first.messages:
                pieces = first.messages.popleft()
                self.call.push(pieces, sum(map(len, pieces)))
            if not first.done:
                break
            lane.popleft()
            self._unanswered -= 1
        if not lane:
            self._lanes.pop(slot.lane, None)
        if self.call.unsent > _MOST_UNSENT_BYTES:
            text = f"The client has not taken {self.call.unsent} bytes of its stream."
            self.call.lose(TooLarge(text))
        self._close_if_done()
        self.call.pump()

    def _close_if_done(self) -> None:
        if self._lanes or not (self._ended or self._draining) or not self.call.alive:
            return
        self._others.discard(self)
        if self._ended:
            self.call.close()
        else:
            self.call.fail(ServiceUnavailable("The server is being stopped.", retry_after_s=1))


class _Slot:
    """A question and its answers, in the order of its lane."""

    __slots__ = ("_request", "_stream", "_task", "done", "lane", "messages", "model", "question")

    def __init__(self, stream: InferStream) -> None:
        self._stream = stream
        self._request: InferenceRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self.question: Question | None = None
        self.model: Model | None = None
        self.lane: object = ""
        self.messages: deque[Sequence[Buffer]] = deque()
        self.done = False

    def ask(self, question: Question) -> None:
        """Sends the question to its model.

        Raises:
            ServeError: If that is not possible.
        """
        stream = self._stream
        model = self.model = find_model(question, stream.services)
        plan = inference.planned(stream.services, model, question.asked)
        around = surroundings(stream.call, question, new_request_id(), streams=True)
        if plan.by_row:
            loop = asyncio.get_running_loop()
            answers = inference.stream(stream.services, model, question.asked, around)
            self._task = loop.create_task(self._ask_rows(question, answers))
            return
        request = request_of(model, question.asked, around, self, plan.counts_rows)
        self._request = request
        model.submit(request)

    async def _ask_rows(self, question: Question, answers: AsyncIterator[inference.Answer]) -> None:
        try:
            async for answer in answers:
                self._put(question, answer)
        except ServeError as error:
            self.fail(error)
        except Exception:
            self._stream.call.break_off()

    def send(self, chunk: Chunk) -> None:
        """Takes the next chunk of the model."""
        question, model = self.question, self.model
        assert question is not None  # noqa: S101  (it was asked)
        assert model is not None  # noqa: S101
        if self.done:
            return
        try:
            self._put(question, read_answer(model, question.asked, chunk))
        except ServeError as error:
            self.cancel()
            self.fail(error)
        except Exception:  # else it would be the worker's
            self._stream.call.break_off()

    def _put(self, question: Question, answer: inference.Answer) -> None:
        if question.final or not answer.empty:
            self.messages.append(in_stream(question, answer, self._stream.services.v2.regions))
        self.done = answer.last
        self._stream.moved(self)

    def fail(self, error: ServeError) -> None:
        """The answer is an error; the stream goes on."""
        id = self.question.asked.id if self.question is not None else ""
        self.messages.append((stream_error(error.message, id),))
        self.done = True
        self._stream.moved(self)

    def cancel(self) -> None:
        """The answer is for nobody."""
        if self._request is not None and not self._request.answered:
            self._request.cancel()
        if self._task is not None:
            self._task.cancel()


def _lane(question: Question) -> object:
    """What the answer to a question must wait for: those before it in its lane."""
    sequence = question.asked.parameters.get("sequence_id")
    if sequence not in _NO_SEQUENCE:
        return "sequence", question.model, sequence
    return object() if question.asked.id else ""
