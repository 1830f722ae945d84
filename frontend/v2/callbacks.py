"""V2 inference without a coroutine: for a surface that is driven by events.

The same as ``inference.infer`` for models that take tensors; those that are asked row by row need
several requests and somebody who waits for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from marserve.frontend.errors import InternalError, ServeError
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.frontend.v2.answers import NotOffered, read_answer
from marserve.frontend.v2.inference import IN_PIECES, NO_ANSWER
from marserve.frontend.v2.messages import Answer, Infer
from marserve.frontend.v2.plans import plan_of
from marserve.frontend.v2.questions import Call, question

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.model import Model
    from marserve.frontend.v2.traces import Traces

_log = logging.getLogger(__name__)

Told = Callable[["Answer | ServeError"], None]


def ask(services: Services, model: Model, asked: Infer, call: Call, told: Told) -> Asked:
    """Sends a request to a model that takes tensors; calls ``told`` once.

    Args:
        services: Of the server.
        model: The version that answers; takes tensors.
        asked: The request.
        call: What surrounds it.
        told: Called with the answer, or why there is none; not after the request was cancelled.

    Raises:
        ServeError: If the request is not accepted; ``told`` is not called then.
    """
    plan = plan_of(model, services.config.default_service_handler)
    waiting = Asked(services.v2.traces, model, asked, told)
    waiting.request = question(model, asked, call, waiting, plan.counts_rows)
    model.submit(waiting.request)
    return waiting


class Asked:
    """A request of which an answer is expected; made by ``ask``.

    Attributes:
        answered: Whether its answer is told.
        request: What was sent to the model.
    """

    __slots__ = ("_asked", "_found", "_model", "_told", "_traces", "answered", "request")

    request: InferenceRequest | None

    def __init__(self, traces: Traces, model: Model, asked: Infer, told: Told) -> None:
        self._traces, self._model, self._asked, self._told = traces, model, asked, told
        self._found: Answer | None = None
        self.answered = False

    def cancel(self) -> None:
        """Its caller is gone."""
        if self.request is not None:
            self.request.cancel()

    def send(self, chunk: Chunk) -> None:
        """Takes the next chunk."""
        try:
            whole = self._take(chunk)
        except ServeError as error:
            self._fail(error)
        except Exception:
            _log.exception("an answer of model %s cannot be read", self._model.name)
            self._fail(InternalError("The answer of the model's handler cannot be read."))
        else:
            if whole is not None:
                self._tell(whole)

    def _take(self, chunk: Chunk) -> Answer | None:
        """Returns the answer once it is complete."""
        piece = read_answer(self._model, self._asked, chunk)
        if chunk.last and self._traces.on and self.request is not None:
            self._traces.note(self._model, self.request)
        if self._found is None:
            self._found = piece
        elif not piece.empty:
            raise NotOffered(IN_PIECES)
        if not chunk.last:
            return None
        if self._found.empty:
            raise NotOffered(NO_ANSWER)
        return self._found

    def _fail(self, error: ServeError) -> None:
        if self.request is not None and not self.request.answered:
            self.request.cancel()  # what still comes of it is for nobody
        self._tell(error)

    def _tell(self, what: Answer | ServeError) -> None:
        self.answered = True
        self.request = None  # which knows its sink: in a circle, its body would stay for long
        self._told(what)
