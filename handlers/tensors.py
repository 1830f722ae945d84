"""Tensors of V2 requests: numpy arrays for a handler, and its result as named tensors again.

A request of tensors is one row: a dict from name to array. ``BYTES`` are arrays of ``bytes``
objects. A result is an array or tensor, or a dict of such by name.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from marserve.archiver.tensor_marks import MARK, NOTHING
from marserve.handlers.errors import RequestError

_TYPES = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
_WORDS = {dtype: word for word, dtype in _TYPES.items()}
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class TensorAnswer:
    """A result with more to it than tensors.

    Args:
        outputs: Arrays by name.
        parameters: Texts, numbers and truths by name, for the client.
        nothing: Whether it only ends an answer, all of whose tensors were sent before.
        output_parameters: As ``parameters``, of outputs by their names.
    """

    outputs: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    nothing: bool = False
    output_parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


NO_TENSORS = TensorAnswer({}, nothing=True)


def decode_tensor(kind: str, data: bytearray | memoryview) -> Any:
    """Returns the array that a part of a request holds.

    Args:
        kind: The part's media type: ``MARK``, datatype, a space, the shape with commas.
        data: Packed, little-endian; checked by the server.
    """
    import numpy

    word, shape = _read_kind(kind)
    if word == "BF16":  # numpy has none; FP32 begins with the same 16 bits
        halves = numpy.frombuffer(data, "<u2").astype("<u4")
        return (halves << 16).view("<f4").reshape(shape)
    if word != "BYTES":
        return numpy.frombuffer(data, _TYPES[word]).reshape(shape)
    values, at = [], 0
    while at < len(data):
        end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        values.append(bytes(data[at + _LENGTH.size : end]))
        at = end
    out = numpy.empty(len(values), object)
    out[:] = values
    return out.reshape(shape)


@lru_cache(1024)
def _read_kind(kind: str) -> tuple[str, tuple[int, ...]]:
    """One request has the shape of the next."""
    word, _, sizes = kind.removeprefix(MARK).partition(" ")
    return word, tuple(int(size) for size in sizes.split(",") if size)


def encode_outputs(result: Any) -> tuple[str, bytes | memoryview]:
    """Returns the layout of a result as JSON, and its tensors end to end, a lone one uncopied.

    Args:
        result: A dict of arrays by name, a ``TensorAnswer``, or one array, which is called
            ``output``. Tensors, lists, numbers and text serve as arrays.

    Raises:
        TypeError: If a value is no regular array; naming the output.
    """
    more: Mapping[str, Mapping[str, Any]] = {}
    if isinstance(result, TensorAnswer):
        if result.nothing:
            return NOTHING, b""
        result, more = result.outputs, result.output_parameters
    named = result if isinstance(result, Mapping) else {"output": result}
    layout, pieces = [], []
    for name, value in named.items():
        word, shape, raw = _encoded(str(name), value)
        own = more.get(name)
        one = (str(name), word, tuple(shape), len(raw))
        layout.append(json.dumps([*one, dict(own)]) if own else _described(one))
        pieces.append(raw)
    return f"[{', '.join(layout)}]", pieces[0] if len(pieces) == 1 else b"".join(pieces)


@lru_cache(1024)
def _described(one: tuple[str, str, tuple[int, ...], int]) -> str:
    """One answer is laid out as the next."""
    return json.dumps(one)


def _encoded(name: str, value: Any) -> tuple[str, list[int], bytes | memoryview]:
    import numpy

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype):
            words = value.float().contiguous().numpy().view("<u4") >> 16  # exact: the rest is zero
            return "BF16", list(value.shape) or [1], words.astype("<u2").tobytes()
        value = value.numpy()
    if isinstance(value, (bytes, bytearray)):
        value = numpy.array([bytes(value)], object)
    try:
        array = value if type(value) is numpy.ndarray else numpy.asarray(value)
        array = array if array.ndim else array.reshape(1)
    except ValueError as error:
        raise TypeError(f"output {name!r} is no regular array: {error}") from None
    word = _word(array.dtype)
    if word is not None:
        if not (array.dtype.isnative and sys.byteorder == "little"):
            array = array.astype(array.dtype.newbyteorder("<"))
        flat = numpy.ascontiguousarray(array).reshape(-1)
        return word, list(array.shape), flat.view("u1").data
    if array.dtype.kind not in "OSU":
        raise TypeError(f"output {name!r}: {array.dtype} is no datatype of V2")
    texts = [_bytes(name, each) for each in array.ravel().tolist()]
    raw = b"".join(piece for text in texts for piece in (_LENGTH.pack(len(text)), text))
    return "BYTES", list(array.shape), raw


@lru_cache(64)
def _word(dtype: Any) -> str | None:
    return _WORDS.get(dtype.name)


def _bytes(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"output {name!r}: {type(value).__name__} is no datatype of V2")


class TensorBatch:
    """The rows of a batch of V2 requests as one tensor, and the results cut apart again.

    Args:
        rows: One dict of arrays a request.
    """

    def __init__(self, rows: list[Any]) -> None:
        self._lengths = [len(next(iter(row.values()))) for row in rows]
        self._rows = rows

    @staticmethod
    def holds(rows: Any) -> bool:
        """Tells whether these are the rows of V2 requests.

        Raises:
            RequestError: If one has not just one numeric tensor with rows.
        """
        import numpy

        if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
            return False
        arrays = [list(row.values()) for row in rows]
        if not all(isinstance(value, numpy.ndarray) for row in arrays for value in row):
            return False
        if any(len(row) != 1 or row[0].dtype == object or not row[0].ndim for row in arrays):
            raise RequestError("this model takes one numeric tensor, its first dimension the rows")
        return True

    def gather(self, device: Any) -> Any:
        """Returns the tensors of all requests end to end; first dimension: rows."""
        import torch

        arrays = [next(iter(row.values())) for row in self._rows]
        return torch.cat([torch.from_numpy(array) for array in arrays]).to(device)

    def split(self, output: Any) -> list[Any]:
        """Returns one tensor a request, or one dict of tensors."""
        if isinstance(output, Mapping):
            columns = {name: value.split(self._lengths) for name, value in output.items()}
            count = range(len(self._lengths))
            return [{name: column[i] for name, column in columns.items()} for i in count]
        return list(output.split(self._lengths))
