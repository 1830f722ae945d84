"""V2 inference over gRPC: ModelInfer, one question and one answer; ModelStreamInfer, many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marserve.archiver.tensor_marks import LAYOUT
from marserve.frontend.errors import ServeError
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.calls import Calls
from marserve.frontend.grpc.open.administration import SERVICE
from marserve.frontend.grpc.open.messages import Question, parse, render
from marserve.frontend.grpc.open.questions import find_model, surroundings
from marserve.frontend.grpc.open.repeats import Known, Repeats
from marserve.frontend.grpc.open.stream import InferStream
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.frontend.v2 import inference
from marserve.frontend.v2.answers import NotOffered, read_answer
from marserve.frontend.v2.messages import Answer
from marserve.frontend.v2.plans import plan_of
from marserve.frontend.v2.questions import Call as Surroundings
from marserve.frontend.v2.questions import question as request_of
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.model import Model

_PIECES = "The model answers in pieces, which ModelInfer cannot carry; use ModelStreamInfer."


class OpenInferenceService:
    """The calls that ask models, as a list of methods.

    Args:
        services: What it works with.
        calls: Makes the methods.
    """

    token = "inference"  # noqa: S105  (the name of a key, not a key)

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._open: set[InferStream] = set()
        self._repeats = Repeats()
        self.calls = calls
        one, many = SERVICE + "ModelInfer", SERVICE + "ModelStreamInfer"
        self.methods = {
            one: calls.quick(one, self._infer),
            many: calls.talk(many, self._stream),
        }

    def drain(self) -> None:
        """The server stops: streams end once what was asked is answered."""
        for stream in list(self._open):
            stream.drain()

    def _infer(self, call: Call, data: Buffer) -> None:
        services = self._services
        found = self._repeats.find(data)
        if found is not None and self._again(call, *found):
            return
        question = parse(data, services.v2.regions)
        model = find_model(question, services)
        plan = inference.planned(services, model, question.asked)
        around = surroundings(call, question, call.id)
        if plan.by_row:
            call.work(self._infer_rows(call, model, question, around))
            return
        answer = _OneAnswer(services, call, model, question)
        request = request_of(model, question.asked, around, answer, plan.counts_rows)
        answer.request = request
        call.on_gone = request.cancel
        model.submit(request)
        answer.known = self._repeats.learn(data, question, plan, request)

    def _again(self, call: Call, known: Known, raws: list[Buffer]) -> bool:
        """Asks what was asked before of other tensors; false if the model has to look at it."""
        services, question = self._services, known.question
        model = services.registry.route(question.model, question.version)
        form = plan_of(model, services.config.default_service_handler).forms.get(known.key)
        if form is None:
            return False
        answer = _OneAnswer(services, call, model, question, known)
        request = form.request(raws, surroundings(call, question, call.id), answer)
        answer.request = request
        call.on_gone = request.cancel
        model.submit(request)
        return True

    async def _infer_rows(
        self, call: Call, model: Model, question: Question, around: Surroundings
    ) -> None:
        with self.calls.failing(call):
            answer = await inference.infer(self._services, model, question.asked, around)
            pieces = render(question, answer, self._services.v2.regions)
            call.finish(pieces, sum(map(len, pieces)))

    def _stream(self, call: Call) -> InferStream:
        return InferStream(self._services, call, self._open)


class _OneAnswer:
    """Answers a call with the one message that a model gives, and then perhaps says was all."""

    __slots__ = (
        "_call",
        "_found",
        "_layout",
        "_model",
        "_question",
        "_services",
        "known",
        "request",
    )

    def __init__(
        self,
        services: Services,
        call: Call,
        model: Model,
        question: Question,
        known: Known | None = None,
    ) -> None:
        self._services = services
        self._call = call
        self._model = model
        self._question = question
        self._found: Answer | None = None
        self._layout = ""
        self.known = known
        self.request: InferenceRequest | None = None

    def send(self, chunk: Chunk) -> None:
        """Takes the next chunk, or the only one."""
        if self.known is not None and self._found is None and not self._services.v2.traces.on:
            pieces = self.known.answer(chunk)
            if pieces is not None:
                self._call.finish(pieces, sum(map(len, pieces)))
                return
            self._layout = chunk.headers.get(LAYOUT, "")
        try:
            answer = read_answer(self._model, self._question.asked, chunk)
            if not answer.empty:
                if self._found is not None:
                    raise NotOffered(_PIECES)
                self._found = answer
            if answer.last:
                self._finish()
        except ServeError as error:
            self._call.lose(error)
        except Exception:  # else it would be the worker's
            self._call.break_off()

    def _finish(self) -> None:
        if self._found is None:
            raise NotOffered("The model gave no answer to this request; ModelInfer takes one.")
        v2 = self._services.v2
        pieces = render(self._question, self._found, v2.regions)
        if v2.traces.on and self.request is not None:
            v2.traces.note(self._model, self.request)
        if self.known is not None and self._layout:
            self.known.learn(self._layout, self._found, pieces)
        self._call.finish(pieces, sum(map(len, pieces)))
