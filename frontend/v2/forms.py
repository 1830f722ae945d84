"""Binary V2 requests that are sent alike: what their JSON part says is worked out once.

Clients that send tensors in binary form send the same JSON again and again, and only the bytes
behind it differ. Checked, and brought into the form that the worker is asked in, it is kept with
the model's plan; so is the JSON part of the answers that such requests get.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marserve.archiver.tensor_marks import LAYOUT, REQUEST_HEADERS
from marserve.frontend.types import Chunk, InferenceRequest, Sink
from marserve.frontend.v2 import shared_memory
from marserve.frontend.v2.answers import read_layout
from marserve.frontend.v2.callbacks import Asked, Told
from marserve.frontend.v2.messages import Answer, Infer

if TYPE_CHECKING:
    from marserve.frontend.model import Model
    from marserve.frontend.v2.plans import Plan
    from marserve.frontend.v2.questions import Call
    from marserve.frontend.v2.traces import Traces
    from marserve.worker.wire import Buffer

LONGEST_BYTES = 2048
"""Of a JSON part that is kept."""
_MOST_FORMS = 256
MOST_ANSWERS = 64
"""Kept of a form; a model answers in few shapes."""
_HARMLESS = frozenset({"binary_data_output"})  # the others mean something for their request alone


class Form:
    """What requests with the same JSON part have in common.

    Args:
        asked: The first of them.
        request: What its model was asked.
    """

    def __init__(self, asked: Infer, request: InferenceRequest) -> None:
        self.asked = Infer([], asked.outputs, asked.parameters, asked.id)
        self._parts = request.parts
        self._sizes = [len(each.raw) for each in asked.inputs]
        self._total = sum(self._sizes)
        self._rows = request.rows
        own = {*REQUEST_HEADERS, "explain"}
        self._headers = {name: text for name, text in request.headers.items() if name in own}
        self._answers: dict[str, tuple[bytes, dict[str, str]]] = {}

    def cut(self, body: Buffer, at: int) -> list[Buffer] | None:
        """Returns the tensors' bytes in a body; None if it is not as long as the JSON part says.

        Args:
            body: The whole of it.
            at: Where the tensors begin.
        """
        if len(body) - at != self._total:
            return None
        view = memoryview(body)
        bodies: list[Buffer] = []
        for size in self._sizes:
            bodies.append(view[at : at + size])
            at += size
        return bodies

    def request(self, bodies: list[Buffer], call: Call, sink: Sink) -> InferenceRequest:
        """Returns the request for other bytes of the same tensors.

        Args:
            bodies: Of each tensor, as long as those of the first request.
            call: What surrounds it.
            sink: Receives the answer.
        """
        headers = call.headers.copy()
        for name in REQUEST_HEADERS:
            headers.pop(name, None)
        headers.update(self._headers)
        return InferenceRequest(
            call.id,
            call.command,
            headers,
            self._parts,
            bodies,
            sink,
            call.timeout_s,
            call.pinned,
            self._rows,
        )

    def answer(self, chunk: Chunk) -> Chunk | None:
        """Returns the whole answer that a chunk is; None if nothing like it was learnt."""
        known = self._answers.get(layout_of_all(chunk))
        return None if known is None else Chunk(known[0], headers=known[1], tail=(chunk.body,))

    def learn(self, layout: str, answer: Answer, rendered: Chunk) -> None:
        """Keeps the JSON part of an answer, if the tensors behind it are as the model sent them."""
        count = len(answer.outputs)
        all_are_binary = len(rendered.tail) == count > 0
        if all_are_binary and is_as_sent(layout, answer) and len(self._answers) < MOST_ANSWERS:
            self._answers[layout] = bytes(rendered.body), dict(rendered.headers)


class Repeated(Asked):
    """A request of a form, of which an answer is expected."""

    __slots__ = ("_form", "_layout", "_sink")

    def __init__(self, traces: Traces, model: Model, form: Form, told: Told, sink: Sink) -> None:
        super().__init__(traces, model, form.asked, told)
        self._form, self._sink, self._layout = form, sink, ""

    def send(self, chunk: Chunk) -> None:
        """Takes the next chunk."""
        whole = self._form.answer(chunk) if self._found is None and not self._traces.on else None
        if whole is None:
            self._layout = chunk.headers.get(LAYOUT, "") if chunk.last else ""
            super().send(chunk)
            return
        self.answered = True
        self.request = None
        self._sink.send(whole)

    def learn(self, answer: Answer, rendered: Chunk) -> None:
        """Lets the form know what the last chunk became."""
        if self._layout:
            self._form.learn(self._layout, answer, rendered)


def layout_of_all(chunk: Chunk) -> str:
    """Returns the layout of a chunk that is a whole answer and says no more; else an empty text."""
    plain = chunk.status == 200 and chunk.last and chunk.failure is None
    return chunk.headers.get(LAYOUT, "") if plain and len(chunk.headers) == 1 else ""


def is_as_sent(layout: str, answer: Answer) -> bool:
    """Tells whether an answer has the model's tensors in its order, and says nothing besides."""
    if answer.status != 200 or answer.parameters or answer.headers:
        return False
    return [name for name, *_ in read_layout(layout)] == [each.name for each in answer.outputs]


def json_part(body: Buffer, length: str | None) -> bytes:
    """Returns the JSON part of a request with binary tensors; empty if it is not to be kept."""
    if length is None or not (length.isascii() and length.isdecimal()):
        return b""
    size = int(length)
    return bytes(memoryview(body)[:size]) if size <= min(len(body), LONGEST_BYTES) else b""


def keep(plan: Plan, json: bytes, asked: Infer, request: InferenceRequest, total: int) -> None:
    """Keeps the form of a request that was accepted, if others can be like it.

    Args:
        plan: Of its model.
        json: Its JSON part.
        asked: What that says.
        request: What the model was asked.
        total: Bytes of its body.
    """
    behind = total - len(json)
    if repeatable(asked) and sum(len(each.raw) for each in asked.inputs) == behind:
        remember(plan, json, Form(asked, request))


def remember(plan: Plan, key: bytes | tuple[int, bytes], form: Form) -> None:
    """Keeps a form with the plan of its model, until there are too many."""
    if len(plan.forms) >= _MOST_FORMS:
        plan.forms.clear()
    plan.forms[key] = form


def repeatable(asked: Infer) -> bool:
    """Tells whether a request has a meaning that does not depend on the bytes of its tensors."""
    if asked.id or not asked.parameters.keys() <= _HARMLESS:
        return False  # whoever gives ids gives each its own: none would be like it
    if any(each.datatype == "BYTES" for each in asked.inputs):
        return False  # how many elements there are is in the bytes
    marks = {shared_memory.REGION, "classification"}
    return not any(marks & each.parameters.keys() for each in asked.outputs)
