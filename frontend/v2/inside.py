"""Questions of the server itself and of its models: from parts to tensors, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from marserve.archiver.tensor_marks import ANSWERED, ID, LAYOUT, MARK, NOTHING, PARAMETERS, WANTED
from marserve.frontend.errors import BadRequest
from marserve.frontend.types import Chunk
from marserve.frontend.v2.messages import Answer, Infer, Wanted
from marserve.frontend.v2.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from marserve.worker.wire import Buffer, Part


def tensor_of(part: Part, body: Buffer) -> Tensor:
    """Returns the tensor that a part of a request is.

    Raises:
        BadRequest: If it is none.
    """
    kind = part.content_type or ""
    if not kind.startswith(MARK):
        raise BadRequest("this model takes tensors: ask it by the Open Inference Protocol (V2)")
    datatype, _, sizes = kind.removeprefix(MARK).partition(" ")
    shape = tuple(int(size) for size in sizes.split(",") if size)
    return Tensor(part.name, datatype, shape, body)


def infer_of(tensors: Iterable[Tensor], headers: Mapping[str, str]) -> Infer:
    """Returns the request that tensors are, with what the headers tell of it."""
    parameters: dict[str, Any] = json.loads(headers.get(PARAMETERS) or "{}")
    names = json.loads(headers.get(WANTED) or "[]")
    return Infer(list(tensors), [Wanted(name) for name in names], parameters, headers.get(ID, ""))


def chunk_of(answer: Answer) -> Chunk:
    """Returns an answer, or a piece of one, as a model's handler sends it."""
    if answer.empty:
        return Chunk(b"", answer.status, headers={LAYOUT: NOTHING}, last=answer.last)
    layout = [[each.name, each.datatype, each.shape, len(each.raw)] for each in answer.outputs]
    headers = {LAYOUT: json.dumps(layout)}
    if answer.parameters:
        headers[ANSWERED] = json.dumps(answer.parameters)
    raws = [each.raw for each in answer.outputs]
    body = raws[0] if len(raws) == 1 else b"".join(raws)
    return Chunk(body, answer.status, headers=headers, last=answer.last)
