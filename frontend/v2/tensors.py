"""Tensors of the V2 protocol: from JSON data to raw bytes and back, checked against their shape."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from types import MappingProxyType
from typing import Any

from marserve.frontend.errors import BadRequest
from marserve.worker.wire import Buffer

_CODES = {
    "BOOL": "b",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP32": "f",
    "FP64": "d",
}
SIZES = {name: array(code).itemsize for name, code in _CODES.items()} | {"FP16": 2, "BF16": 2}
"""Bytes of one element of each datatype but BYTES, whose elements have a length of their own."""
_LENGTH = struct.Struct("<I")
_MOST_DIMENSIONS, _MOST_ELEMENTS = 32, 1 << 60  # beyond which a handler could make no array
_FLOATS = frozenset({"FP16", "BF16", "FP32", "FP64"})
_NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)  # not frozen: made for every request, and that would take thrice as long
class Tensor:
    """A named tensor, as it travels: row-major, little-endian.

    Args:
        name: Of the input or output.
        datatype: A word of the protocol, such as ``FP32``.
        shape: No negative numbers.
        raw: ``BYTES`` elements each behind a ``u32`` length, others packed.
        parameters: Of this tensor, without those that only say where its bytes are.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    raw: Buffer
    parameters: Mapping[str, Any] = field(default_factory=lambda: _NO_PARAMETERS)


def check_kind(name: str, datatype: str, shape: Sequence[int]) -> None:
    """Refuses datatypes and shapes that there cannot be.

    Raises:
        BadRequest: Naming the tensor.
    """
    if datatype != "BYTES" and datatype not in SIZES:
        known = ", ".join([*SIZES, "BYTES"])
        raise BadRequest(f"input '{name}': datatype '{datatype:.40}' is none of {known}")
    if shape and min(shape) < 0:
        raise BadRequest(f"input '{name}': shape {list(shape)} has a negative dimension")
    if len(shape) > _MOST_DIMENSIONS or (shape and max(shape) > _MOST_ELEMENTS):
        raise BadRequest(f"input '{name}': no array has a shape of these {len(shape)} dimensions")
    if 0 in shape and prod(filter(None, shape)) > _MOST_ELEMENTS:
        raise BadRequest(f"input '{name}': no array has the shape {list(shape)}")


def from_json(name: str, datatype: str, shape: Sequence[int], data: Any) -> Tensor:
    """Returns the tensor that a request holds as JSON.

    Args:
        name: Of the input.
        datatype: As sent.
        shape: As sent.
        data: Flat, or nested as the shape says.

    Raises:
        BadRequest: If they do not fit together; naming the tensor.
    """
    check_kind(name, datatype, shape)
    values = _flat(name, shape, data)
    if len(values) != prod(shape):
        raise BadRequest(
            f"input '{name}': {len(values)} values in data, but shape {list(shape)} has"
            f" {prod(shape)}"
        )
    try:
        raw = _packed(datatype, values)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise BadRequest(f"input '{name}': data are not {datatype}: {error}") from None
    return Tensor(name, datatype, tuple(shape), raw)


def from_raw(name: str, datatype: str, shape: Sequence[int], raw: Buffer) -> Tensor:
    """Returns the tensor that a request holds in binary form.

    Raises:
        BadRequest: If its size is not what datatype and shape say; naming the tensor.
    """
    check_kind(name, datatype, shape)
    if datatype == "BYTES":
        count = sum(1 for _ in _ends(name, memoryview(raw)))
        if count != prod(shape):
            raise BadRequest(
                f"input '{name}': {count} elements of BYTES, but shape {list(shape)} has"
                f" {prod(shape)}"
            )
    elif len(raw) != prod(shape) * SIZES[datatype]:
        raise BadRequest(
            f"input '{name}': {len(raw)} bytes of binary data, but {datatype} of shape"
            f" {list(shape)} has {prod(shape) * SIZES[datatype]}"
        )
    return Tensor(name, datatype, tuple(shape), raw)


def elements(name: str, raw: Buffer) -> Iterator[bytes]:
    """Yields the elements of a ``BYTES`` tensor.

    Raises:
        BadRequest: If a length goes beyond the end; naming the tensor.
    """
    view, begin = memoryview(raw), 0
    for end in _ends(name, view):
        yield bytes(view[begin + _LENGTH.size : end])
        begin = end


def _ends(name: str, view: memoryview) -> Iterator[int]:
    """Where each element of ``BYTES`` ends."""
    at = 0
    while at < len(view):
        begin = at + _LENGTH.size
        size = _LENGTH.unpack_from(view, at)[0] if begin <= len(view) else 0
        at = begin + size
        if at > len(view):
            raise BadRequest(f"input '{name}': the last element of BYTES is cut off")
        yield at


def to_json(tensor: Tensor, kind: str = "output") -> list[Any]:
    """Returns the flat data of an output, or of an input.

    Raises:
        BadRequest: If JSON has no form for them; naming the output and what to ask for.
    """
    if tensor.datatype == "BYTES":
        try:
            return [each.decode() for each in elements(tensor.name, tensor.raw)]
        except UnicodeDecodeError:
            raise _binary_only(tensor, kind, "bytes that are no UTF-8 text") from None
    values = unpacked(tensor.datatype, tensor.raw)
    if tensor.datatype in _FLOATS and not all(map(isfinite, values)):
        raise _binary_only(tensor, kind, "NaN or infinity")
    return values


def unpacked(datatype: str, raw: Buffer) -> list[Any]:
    """Returns the elements of a tensor that is not ``BYTES`` as Python values."""
    if datatype == "FP16":
        return list(struct.unpack(f"<{len(raw) // 2}e", raw))
    if datatype == "BF16":  # FP32 begins with the same 16 bits
        halves = array("H", bytes(raw))
        return array("f", array("I", [half << 16 for half in halves]).tobytes()).tolist()
    values = array(_CODES[datatype])
    values.frombytes(raw)
    return [bool(v) for v in values] if datatype == "BOOL" else values.tolist()


def pack_bytes(values: Sequence[bytes]) -> bytes:
    """Returns the raw form of a ``BYTES`` tensor."""
    return b"".join(piece for each in values for piece in (_LENGTH.pack(len(each)), each))


def _binary_only(tensor: Tensor, kind: str, what: str) -> BadRequest:
    if kind == "input":
        return BadRequest(f"input '{tensor.name}' holds {what}, which this model does not take")
    return BadRequest(
        f"output '{tensor.name}' holds {what}, for which JSON has no form; ask for it with the"
        ' parameter "binary_data": true'
    )


def _flat(name: str, shape: Sequence[int], data: Any) -> list[Any]:
    """The values in order; nested data must be nested as the shape is."""
    if not isinstance(data, list):
        raise BadRequest(f"input '{name}': data is no list")
    if list not in set(map(type, data)):
        return data
    level = [data]
    for depth, size in enumerate(shape):
        if any(not isinstance(each, list) or len(each) != size for each in level):
            raise BadRequest(
                f"input '{name}': data are not nested as shape {list(shape)} says,"
                f" at dimension {depth}"
            )
        if depth < len(shape) - 1:
            level = [each for row in level for each in row]
    return [value for row in level for value in row]


def _packed(datatype: str, values: list[Any]) -> bytes:
    kinds = set(map(type, values))  # of what JSON has: no others
    if datatype == "BYTES":
        if not kinds <= {str}:
            raise TypeError("expected text")
        return pack_bytes([v.encode() for v in values])
    if datatype == "BOOL" and not kinds <= {bool}:
        raise TypeError("expected true and false")
    if datatype != "BOOL" and bool in kinds:
        raise TypeError("expected numbers, got true or false")
    if datatype == "FP16":
        return struct.pack(f"<{len(values)}e", *values)
    if datatype == "BF16":
        words = array("I", array("f", values).tobytes())
        return array("H", [_nearest_half(word) for word in words]).tobytes()
    return array(_CODES[datatype], values).tobytes()


def _nearest_half(word: int) -> int:
    """The upper 16 bits of an FP32 number, rounded to the nearest, or the even one of two."""
    if word & 0x7FFFFFFF > 0x7F800000:  # NaN stays one
        return word >> 16 | 0x40
    return (word + 0x7FFF + (word >> 16 & 1)) >> 16
