"""What is answered the short way: from a complete request to what its model is asked.

One function a kind of request. Each hands the request to its model, whose answer goes to the
connection as chunks, and returns what ends it if the client leaves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from marserve.frontend.api import http, inference, v2
from marserve.frontend.errors import InternalError, ServeError
from marserve.frontend.types import Chunk, InferenceRequest, Sink
from marserve.frontend.v2 import callbacks, forms, messages
from marserve.frontend.v2 import inference as tensors
from marserve.frontend.v2.plans import plan_of
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.api.hot_head import RequestHead
    from marserve.frontend.api.routing import Answer
    from marserve.frontend.model import Model
    from marserve.frontend.v2.shared_memory import Regions

_log = logging.getLogger(__name__)
_COMPRESSED = (b"gzip", b"deflate")


@dataclass(slots=True)  # frozen ones take three times as long to make
class Arrived:
    """A complete request.

    Args:
        services: What the routes work with.
        head: Its route, its path and its headers.
        id: Of the request.
        body: All of it.
        sink: Receives the answer.
    """

    services: Services
    head: RequestHead
    id: str
    body: Buffer
    sink: Sink

    @property
    def version(self) -> str | None:
        """The path's version, or None."""
        return self.head.match.parameters.get("version") or None

    @property
    def timeout_s(self) -> float | None:
        """The client's own time limit."""
        return http.parse_timeout(self.head.header(b"x-request-timeout"))

    def model(self) -> Model:
        """Returns the version that answers."""
        return self.services.registry.route(self.head.match.parameters["model"], self.version)

    def headers(self) -> dict[str, str]:
        """Returns the headers that a handler sees."""
        return self.head.headers(self.services.auth.enabled)


class Begun(Protocol):
    """What a request became."""

    answered: bool

    def cancel(self) -> None:
        """The client is gone."""


def predict(arrived: Arrived) -> Begun:
    """``/predictions/...``."""
    return _ask(arrived, "predict")


def explain(arrived: Arrived) -> Begun:
    """``/explanations/...``."""
    return _ask(arrived, "explain")


def infer(arrived: Arrived) -> Begun:
    """``/v2/models/.../infer``."""
    services, model = arrived.services, arrived.model()
    plan, regions = plan_of(model, services.config.default_service_handler), services.v2.regions
    headers = arrived.headers()
    call = tensors.Call(headers, arrived.id, arrived.timeout_s, arrived.version is not None)
    length = arrived.head.header(b"inference-header-content-length")
    json = forms.json_part(arrived.body, length)
    form = plan.forms.get(json)
    if form is not None and (begun := _repeat(arrived, model, form, call, len(json))) is not None:
        return begun
    asked = messages.parse(arrived.body, length, plan.signature, regions)
    if plan.by_row:
        return _Errand(arrived.sink, services, model, asked, call)

    def tell(answer: messages.Answer | ServeError) -> None:
        arrived.sink.send(_told(asked, answer, regions))

    waiting = callbacks.ask(services, model, asked, call, tell)
    if json and waiting.request is not None:
        forms.keep(plan, json, asked, waiting.request, len(arrived.body))
    return waiting


def _repeat(
    arrived: Arrived, model: Model, form: forms.Form, call: tensors.Call, at: int
) -> Begun | None:
    """Asks for what is like an earlier request; None if it is not after all."""
    sink, v2_services = arrived.sink, arrived.services.v2

    def tell(answer: messages.Answer | ServeError) -> None:
        chunk = _told(form.asked, answer, v2_services.regions)
        if not isinstance(answer, ServeError):
            waiting.learn(answer, chunk)
        sink.send(chunk)

    bodies = form.cut(arrived.body, at)
    if bodies is None:
        return None
    waiting = forms.Repeated(v2_services.traces, model, form, tell, sink)
    waiting.request = form.request(bodies, call, waiting)
    model.submit(waiting.request)
    return waiting


SHORT: dict[Answer, Callable[[Arrived], Begun]] = {
    inference.predict: predict,
    inference.explain: explain,
    v2.infer: infer,
}
"""The routes that are answered here."""


def is_here(services: Services, answer: Answer, fields: dict[bytes, bytes]) -> bool:
    """Tells whether a request is answered here; a V2 answer is compressed and enveloped there."""
    if answer is not v2.infer:
        return answer in SHORT
    accepted = fields.get(b"accept-encoding")
    if accepted is not None and any(kind in accepted.lower() for kind in _COMPRESSED):
        return False
    return not services.config.service_envelope


def _ask(arrived: Arrived, command: str) -> InferenceRequest:
    model, parameters = arrived.model(), arrived.head.match.parameters
    headers = arrived.headers()
    headers["explain"] = "True" if command == "explain" else "False"
    headers["url_path"] = parameters.get("rest", "")
    parts, bodies = http.parse_body(arrived.head.header(b"content-type"), arrived.body)
    pinned = arrived.version is not None
    request = InferenceRequest(
        arrived.id, command, headers, parts, bodies, arrived.sink, arrived.timeout_s, pinned
    )
    model.submit(request)
    return request


def _told(asked: messages.Infer, answer: messages.Answer | ServeError, regions: Regions) -> Chunk:
    """Never raises: it is called while the answers of others wait."""
    if isinstance(answer, ServeError):
        return v2.refusal(answer)
    try:
        return v2.rendered(asked, answer, regions)
    except ServeError as error:
        return v2.refusal(error)
    except Exception:
        _log.exception("an answer of %s cannot be written", answer.model)
        return v2.refusal(InternalError(f"The answer of model {answer.model} cannot be written."))


class _Errand:
    """A request that takes several to its model, and so a task that waits for them."""

    def __init__(
        self,
        sink: Sink,
        services: Services,
        model: Model,
        asked: messages.Infer,
        call: tensors.Call,
    ) -> None:
        self.answered = False
        self._sink = sink
        self._task = asyncio.ensure_future(self._run(services, model, asked, call))

    def cancel(self) -> None:
        """The client is gone."""
        self._task.cancel()

    async def _run(
        self, services: Services, model: Model, asked: messages.Infer, call: tensors.Call
    ) -> None:
        answer: messages.Answer | ServeError
        try:
            answer = await tensors.infer(services, model, asked, call)
        except ServeError as error:
            answer = error
        except Exception:
            _log.exception("request %s failed", call.id)
            answer = InternalError.of_request(call.id)
        self.answered = True
        self._sink.send(_told(asked, answer, services.v2.regions))
