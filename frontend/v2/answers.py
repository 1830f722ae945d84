"""From what a model sent to the tensors that were asked for, or to an error."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from marserve.archiver.tensor_marks import ANSWERED, LAYOUT, NOTHING
from marserve.frontend.errors import BadRequest, InternalError, ServeError
from marserve.frontend.v2.classification import classified
from marserve.frontend.v2.messages import Answer
from marserve.frontend.v2.tensors import Tensor

if TYPE_CHECKING:
    from marserve.archiver.signature import Signature
    from marserve.frontend.model import Model
    from marserve.frontend.types import Chunk
    from marserve.frontend.v2.messages import Infer


class NotOffered(ServeError):
    """Part of the protocol, but not of this server."""

    status = 501
    type = "NotImplementedException"


class ModelFailed(ServeError):
    """The model's own failure, with its own status."""

    def __init__(self, chunk: Chunk, where: str = "") -> None:
        text = chunk.failure.message if chunk.failure is not None else "the model sent no tensors"
        super().__init__(where + text)
        self.status = chunk.status


def check_chunk(chunk: Chunk, where: str = "") -> Chunk:
    """Returns a chunk that is an answer.

    Args:
        chunk: What came.
        where: Put before the text of the error.

    Raises:
        ModelFailed: If it is none.
    """
    if chunk.failure is not None or not 200 <= chunk.status < 300:
        raise ModelFailed(chunk, where)
    return chunk


def read_answer(model: Model, asked: Infer, chunk: Chunk) -> Answer:
    """Returns a piece of the answer of a model that gives tensors.

    Args:
        model: Which answered.
        asked: The request.
        chunk: What it sent.

    Raises:
        ModelFailed: If it is the model's error.
        InternalError: If it holds no tensors.
        BadRequest: If an output was asked for that is not there.
    """
    layout = check_chunk(chunk).headers.get(LAYOUT)
    if layout is None:
        raise InternalError("the model's handler sent no tensors")
    if layout == NOTHING:
        return Answer(model.name, model.version, [], {}, {}, chunk.status, chunk.last, True)
    outputs, at, view = [], 0, memoryview(chunk.body)
    for name, datatype, shape, size, *more in read_layout(layout):
        outputs.append(Tensor(name, datatype, shape, view[at : at + size], *more))
        at += size
    said = chunk.headers.get(ANSWERED)
    parameters: dict[str, Any] = json.loads(said) if said else {}
    headers = parameters.pop("headers", None) or {}
    return Answer(
        model.name,
        model.version,
        wanted(asked, outputs, model.archive.signature),
        parameters,
        {str(name): str(value) for name, value in headers.items()},
        chunk.status,
        chunk.last,
    )


@lru_cache(1024)
def read_layout(layout: str) -> list[tuple[Any, ...]]:
    """Returns name, datatype, shape and size of each tensor, and its parameters if it has some."""
    read = json.loads(layout)
    return [(name, kind, tuple(shape), *more) for name, kind, shape, *more in read]


def wanted(asked: Infer, outputs: list[Tensor], signature: Signature | None = None) -> list[Tensor]:
    """Returns the outputs that a request asks for, in its order and in the form it wants.

    Raises:
        BadRequest: If there is no such output; naming it.
    """
    if not asked.outputs:
        return outputs
    known = {tensor.name: tensor for tensor in outputs}
    for each in asked.outputs:
        if each.name not in known:
            names = ", ".join(known) or "none"
            raise BadRequest(f"output '{each.name:.100}' is unknown; the model gave: {names}")
    chosen = [known[each.name] for each in asked.outputs]
    return classified(asked, chosen, signature)
