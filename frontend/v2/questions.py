"""From a V2 request to what is sent to a model: one request of tensors, or one for every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from marserve.archiver.tensor_marks import (
    ID,
    MARK,
    OF_INPUTS,
    OF_OUTPUTS,
    PARAMETERS,
    REQUEST_HEADERS,
    STREAM,
    WANTED,
)
from marserve.frontend.errors import BadRequest
from marserve.frontend.types import InferenceRequest, Sink
from marserve.frontend.v2.checks import check_request
from marserve.frontend.v2.rows import Row
from marserve.worker.wire import Part

if TYPE_CHECKING:
    from marserve.frontend.model import Model
    from marserve.frontend.v2.messages import Infer

_NO_SEQUENCE = (0, "", None)


@dataclass(slots=True)
class Call:
    """What surrounds a V2 request, whatever surface it came by.

    Args:
        headers: The client's, or the metadata of its call.
        id: Unique; the server's own.
        timeout_s: The client's own limit; the parameter ``timeout`` of the request wins over it.
        pinned: Whether the client named the version.
        streams: Whether the client takes an answer in several pieces.
        command: ``predict`` or ``explain``.
    """

    headers: dict[str, str]
    id: str
    timeout_s: float | None = None
    pinned: bool = False
    streams: bool = False
    command: str = "predict"


def question(
    model: Model, asked: Infer, call: Call, sink: Sink, counts_rows: bool
) -> InferenceRequest:
    """Returns the request for a model that takes tensors.

    Args:
        model: The version that answers.
        asked: The request.
        call: What surrounds it.
        sink: Receives the answer.
        counts_rows: Whether it fills as much of a batch as its first dimension says.

    Raises:
        BadRequest: If the tensors are not those that the model declares, or a parameter has a
            meaning, and is nothing that it could mean.
    """
    if model.archive.signature is not None:
        check_request(model.archive.signature, asked)
    parts, bodies = [], []
    for each in asked.inputs:
        shape = ",".join(map(str, each.shape))
        parts.append(Part(each.name, len(each.raw), f"{MARK}{each.datatype} {shape}"))
        bodies.append(each.raw)
    shape0 = asked.inputs[0].shape
    rows = max(1, shape0[0]) if counts_rows and shape0 else 1
    headers = _headers(model, asked, call)
    return _request(call.id, headers, (parts, bodies), asked, call, sink, rows)


def row_question(
    model: Model, asked: Infer, call: Call, sink: Sink, row: Row, id: str
) -> InferenceRequest:
    """Returns the request of one row, for a model that takes one thing a request.

    Args:
        model: The version that answers.
        asked: The request that it is a row of.
        call: What surrounds that.
        sink: Receives the answer.
        row: Its parts and their bytes.
        id: Of its own.

    Raises:
        BadRequest: As ``question`` does.
    """
    return _request(id, _headers(model, asked, call), row, asked, call, sink, 1)


def _request(
    id: str, headers: dict[str, str], row: Row, asked: Infer, call: Call, sink: Sink, rows: int
) -> InferenceRequest:
    given = asked.parameters
    timeout_s = call.timeout_s
    priority = 0
    if given:
        timeout_s = (_whole(given, "timeout", "of microseconds") / 1e6) or timeout_s
        priority = _whole(given, "priority", "1 or above, or 0 for the default")
    parts, bodies = row
    return InferenceRequest(
        id, call.command, headers, parts, bodies, sink, timeout_s, call.pinned, rows, priority
    )


def _headers(model: Model, asked: Infer, call: Call) -> dict[str, str]:
    headers = {**call.headers, "explain": "True" if call.command == "explain" else "False"}
    for name in REQUEST_HEADERS:
        headers.pop(name, None)
    headers[PARAMETERS] = _json(asked.parameters) if asked.parameters else "{}"
    if asked.id:
        headers[ID] = asked.id
    if asked.outputs:
        headers[WANTED] = _json([each.name for each in asked.outputs])
        if more := {each.name: each.parameters for each in asked.outputs if each.parameters}:
            headers[OF_OUTPUTS] = _json(more)
    if more := {each.name: dict(each.parameters) for each in asked.inputs if each.parameters}:
        headers[OF_INPUTS] = _json(more)
    if call.streams:
        headers[STREAM] = "1"
    if asked.parameters and model.settings.sequences is not None:
        _add_sequence(headers, model, asked.parameters)
    return headers


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _add_sequence(headers: dict[str, str], model: Model, given: dict[str, Any]) -> None:
    """The parameters of sequences, as the headers that sequences have by every other surface."""
    id, names = given.get("sequence_id"), model.settings.sequences
    if id in _NO_SEQUENCE or names is None:
        return
    if isinstance(id, bool) or not isinstance(id, (int, str)):
        raise BadRequest('parameter "sequence_id": expected a whole number or a text')
    ours = {names.id.lower(), names.start.lower(), names.end.lower()}
    for name in [each for each in headers if each.lower() in ours]:
        del headers[name]
    headers[names.id] = str(id)
    for key, name in (("sequence_start", names.start), ("sequence_end", names.end)):
        if given.get(key, False) not in (True, False):
            raise BadRequest(f'parameter "{key}": expected true or false')
        if given.get(key):
            headers[name] = "true"


def _whole(given: dict[str, Any], name: str, what: str) -> int:
    value = given.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise BadRequest(f'parameter "{name}": expected a whole number {what}, not {value!r:.40}')
    return value
