"""Messages of ModelInfer that differ in the bytes of their tensors alone: parsed once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from marserve.frontend.grpc.open.contents import raw_fields
from marserve.frontend.grpc.open.messages import Question
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.frontend.v2.answers import read_layout
from marserve.frontend.v2.forms import (
    LONGEST_BYTES,
    MOST_ANSWERS,
    Form,
    is_as_sent,
    layout_of_all,
    remember,
    repeatable,
)
from marserve.frontend.v2.messages import Answer, Infer
from marserve.frontend.v2.plans import Plan
from marserve.worker.wire import Buffer

_MOST = 256
_Piece = bytes | tuple[int, int]


@dataclass(slots=True)
class Known:
    """What messages of one kind have in common.

    Args:
        question: What they ask, without the tensors.
        key: Of their form, among those of a model.
        cuts: Where each raw content begins and ends.
        frames: Where there are other bytes between those, and which.
        answers: Messages that answer them: bytes, and places in what the model sends, by its
            layout.
    """

    question: Question
    key: tuple[int, bytes]
    cuts: list[tuple[int, int]]
    frames: list[tuple[int, bytes]]
    answers: dict[str, list[_Piece]]

    def answer(self, chunk: Chunk) -> list[Buffer] | None:
        """Returns the message for the whole answer that a chunk is; None if it is not known."""
        pieces = self.answers.get(layout_of_all(chunk))
        if pieces is None:
            return None
        view = memoryview(chunk.body)
        return [view[p[0] : p[1]] if isinstance(p, tuple) else p for p in pieces]

    def learn(self, layout: str, answer: Answer, pieces: list[Buffer]) -> None:
        """Keeps the message that an answer became, if its tensors are as the model sent them."""
        tensors = read_layout(layout)
        if not is_as_sent(layout, answer) or len(self.answers) >= MOST_ANSWERS:
            return
        found: list[_Piece] = [bytes(pieces[0])]
        at = 0
        for index, (_, _, _, size, *_) in enumerate(tensors):
            found += (bytes(pieces[1 + 2 * index]), (at, at + size))
            at += size
        self.answers[layout] = found + [bytes(each) for each in pieces[1 + 2 * len(tensors) :]]


class Repeats:
    """The kinds of messages that came, by their length and by what is before their tensors."""

    def __init__(self) -> None:
        self._begins: dict[int, int] = {}
        self._known: dict[tuple[int, bytes], Known] = {}

    def find(self, data: Buffer) -> tuple[Known, list[Buffer]] | None:
        """Returns what is known of a message, and its raw contents."""
        size = len(data)
        begin = self._begins.get(size)
        if begin is None:
            return None
        known = self._known.get((size, bytes(data[:begin])))
        if known is None:
            return None
        for at, frame in known.frames:
            if data[at : at + len(frame)] != frame:
                return None
        view = memoryview(data)
        return known, [view[start:end] for start, end in known.cuts]

    def learn(
        self, data: Buffer, question: Question, plan: Plan, request: InferenceRequest
    ) -> Known | None:
        """Takes note of a message that was accepted; returns what is known if others can be so."""
        cuts = raw_fields(data)
        asked = question.asked
        if not cuts or question.typed or not repeatable(asked):
            return None
        begin, sizes = cuts[0][0], [end - start for _, start, end in cuts]
        if begin > LONGEST_BYTES or sizes != [len(each.raw) for each in asked.inputs]:
            return None
        if len(self._known) >= _MOST:
            self._known.clear()
            self._begins.clear()
        key = len(data), bytes(data[:begin])
        plain = replace(question, asked=Infer([], asked.outputs, asked.parameters, asked.id))
        frames = [(at, bytes(data[at:start])) for at, start, _ in cuts]
        places = [(start, end) for _, start, end in cuts]
        known = self._known[key] = Known(plain, key, places, frames, {})
        self._begins[len(data)] = begin
        remember(plan, key, Form(asked, request))
        return known
