"""V2 tensors for handlers that take one thing a request: a row each, and their results gathered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from marserve.frontend.errors import BadRequest
from marserve.frontend.v2.tensors import (
    Tensor,
    elements,
    from_json,
    pack_bytes,
    to_json,
    unpacked,
)
from marserve.worker.wire import Buffer, Part

Row = tuple[list[Part], list[Buffer]]

BY_ROW = frozenset(
    {
        "densenet_handler",
        "image_classifier",
        "image_segmenter",
        "object_detector",
        "text_classifier",
        "transformer_handler",
    }
)
"""Built-in handlers whose request is one text, image or object."""


def split(inputs: Sequence[Tensor], named_text: bool) -> list[Row]:
    """Returns one request a row, each with a field an input.

    Args:
        inputs: Of shape [N] or [N, 1], the same N.
        named_text: Whether a lone input called ``text`` stays a field; others become the body.

    Raises:
        BadRequest: If the shapes are others; naming the tensor.
    """
    if len(inputs) > 1 and any(tensor.datatype != "BYTES" for tensor in inputs):
        return _objects(inputs)
    columns: dict[str, list[bytes]] = {}
    count = inputs[0].shape[0] if inputs[0].shape else 0
    for tensor in inputs:
        _check_shape(tensor, count)
        columns[tensor.name] = _column(tensor)
    name = inputs[0].name
    if len(inputs) == 1 and not (named_text and name == "text"):
        columns = {"data": columns[name]}
    return [
        (
            [Part(name, len(column[i])) for name, column in columns.items()],
            [column[i] for column in columns.values()],
        )
        for i in range(count)
    ]


def gather(bodies: Sequence[Buffer]) -> list[Tensor]:
    """Returns the results of all rows as tensors.

    Args:
        bodies: What the handler answered to each.

    Returns:
        A tensor a key if all results are objects with the same keys, else one named ``output``.
        Texts are ``BYTES``, whole numbers ``INT64``, others ``FP32``, truths ``BOOL``, lists of
        numbers of equal length ``FP32``; what is none of these is JSON in ``BYTES``.
    """
    values = [_value(body) for body in bodies]
    first = values[0]
    alike = isinstance(first, dict) and first
    if alike and all(isinstance(v, dict) and v.keys() == first.keys() for v in values):
        return [_tensor(str(key), [v[key] for v in values]) for key in first]
    return [_tensor("output", values)]


def _objects(inputs: Sequence[Tensor]) -> list[Row]:
    """Texts and numbers as JSON objects, so that numbers stay numbers."""
    count = inputs[0].shape[0] if inputs[0].shape else 0
    columns = {}
    for tensor in inputs:
        _check_shape(tensor, count)
        columns[tensor.name] = to_json(tensor, "input")
    found: list[Row] = []
    for values in zip(*columns.values(), strict=True):
        body = msgspec.json.encode(dict(zip(columns, values, strict=True)))
        found.append(([Part("body", len(body), "application/json")], [body]))
    return found


def _check_shape(tensor: Tensor, count: int) -> None:
    if tensor.shape not in ((count,), (count, 1)) or not count:
        raise BadRequest(
            f"input '{tensor.name}': shape {list(tensor.shape)}; expected [N] or [N, 1] with"
            " at least one row, the same N for all inputs"
        )


def _column(tensor: Tensor) -> list[bytes]:
    if tensor.datatype == "BYTES":
        return list(elements(tensor.name, tensor.raw))
    return [json.dumps(value).encode() for value in unpacked(tensor.datatype, tensor.raw)]


def _value(body: Buffer) -> Any:
    try:
        return json.loads(bytes(body))
    except ValueError:
        return bytes(body)


def _tensor(name: str, values: list[Any]) -> Tensor:
    kinds = {type(value) for value in values}
    if kinds <= {str, bytes}:
        raw = pack_bytes([v.encode() if isinstance(v, str) else v for v in values])
        return Tensor(name, "BYTES", (len(values),), raw)
    simple: Mapping[type, str] = {bool: "BOOL", int: "INT64", float: "FP32"}
    shape = _shape(values)
    if shape is not None:
        datatype = simple[next(iter(kinds))] if len(kinds) == 1 and len(shape) == 1 else "FP32"
        try:
            return from_json(name, datatype, shape, values)
        except BadRequest:  # numbers beyond 64 bits
            pass
    texts = [v if isinstance(v, bytes) else msgspec.json.encode(v) for v in values]
    return Tensor(name, "BYTES", (len(values),), pack_bytes(texts))


def _shape(values: list[Any]) -> list[int] | None:
    """The shape of nested lists of numbers; None if they are ragged or hold anything else."""
    if all(isinstance(v, bool) for v in values):
        return [len(values)]
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return [len(values)]
    if not all(isinstance(v, list) and v for v in values):
        return None
    inner = _shape(values[0])
    if inner is None or any(_shape(v) != inner for v in values) or isinstance(values[0][0], bool):
        return None
    return [len(values), *inner]
