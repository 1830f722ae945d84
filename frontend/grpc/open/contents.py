"""Contents of tensors: typed fields of a message, or raw bytes beside it, to bytes and back."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from marserve.frontend.errors import BadRequest
from marserve.frontend.grpc import open_inference_pb2 as pb
from marserve.frontend.v2.tensors import Tensor, elements, pack_bytes, unpacked
from marserve.worker.wire import Buffer

_RAW_FIELD = b"\x3a"  # number 7, of counted bytes: raw_input_contents
_LARGE_BYTES = 16 << 10
_FIELDS: dict[str, tuple[str, str]] = {
    "BOOL": ("bool_contents", "b"),
    "INT8": ("int_contents", "b"),
    "INT16": ("int_contents", "h"),
    "INT32": ("int_contents", "i"),
    "INT64": ("int64_contents", "q"),
    "UINT8": ("uint_contents", "B"),
    "UINT16": ("uint_contents", "H"),
    "UINT32": ("uint_contents", "I"),
    "UINT64": ("uint64_contents", "Q"),
    "FP32": ("fp32_contents", "f"),
    "FP64": ("fp64_contents", "d"),
}
TYPED = frozenset(_FIELDS) | {"BYTES"}
"""Datatypes that there is a typed field for."""


def take_raw(data: Buffer) -> tuple[Buffer, list[Buffer]]:
    """Takes large raw contents out of the bytes of a ``ModelInferRequest``, without a copy.

    Returns:
        The message without them, and the contents in their order. A small message comes back as
        it is, without contents: the parser of messages is quicker with those.
    """
    if len(data) < _LARGE_BYTES:
        return data, []
    view, rest = memoryview(data), bytearray()
    raws: list[Buffer] = []
    try:
        for begin, content, end in _fields(data):
            if data[begin : begin + 1] == _RAW_FIELD:
                raws.append(view[content:end])
            else:
                rest += view[begin:end]
    except (IndexError, ValueError):
        return data, []  # the parser says that it is no message
    return (bytes(rest), raws) if raws else (data, raws)


def raw_fields(data: Buffer) -> list[tuple[int, int, int]]:
    """Returns where each raw content's field begins, and where the content begins and ends.

    Empty if there is none, or if anything comes after one that is none, or it is no message.
    """
    found: list[tuple[int, int, int]] = []
    try:
        for begin, content, end in _fields(data):
            if data[begin : begin + 1] == _RAW_FIELD:
                found.append((begin, content, end))
            elif found:
                return []
    except (IndexError, ValueError):
        return []
    return found


def _fields(data: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yields where each field of a message begins, where its content does, and where it ends."""
    at, size = 0, len(data)
    while at < size:
        begin = at
        tag, at = _varint(data, at)
        wire = tag & 7
        content = at
        if wire == 0:
            _, at = _varint(data, at)
        elif wire == 2:
            length, content = _varint(data, at)
            at = content + length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError
        if at > size:
            raise ValueError
        yield begin, content, at


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError


def from_typed(name: str, datatype: str, contents: pb.InferTensorContents) -> bytes:
    """Returns the raw form of typed contents.

    Raises:
        BadRequest: If they are in another field than the datatype's, or are no such values.
    """
    filled = [field.name for field, _ in contents.ListFields()]
    wanted = "bytes_contents" if datatype == "BYTES" else _FIELDS.get(datatype, ("", ""))[0]
    if not wanted:
        raise BadRequest(f"input '{name}': {datatype:.40} has no typed field; send it raw")
    if any(each != wanted for each in filled):
        raise BadRequest(
            f"input '{name}': contents of {datatype} belong in {wanted}, not {', '.join(filled)}"
        )
    if datatype == "BYTES":
        return pack_bytes(contents.bytes_contents)
    try:
        return array(_FIELDS[datatype][1], getattr(contents, wanted)).tobytes()
    except (OverflowError, struct.error) as error:
        raise BadRequest(f"input '{name}': contents are not {datatype}: {error}") from None


def to_typed(tensor: Tensor, contents: pb.InferTensorContents) -> None:
    """Writes a tensor's values into the field of its datatype, one of ``TYPED``."""
    if tensor.datatype == "BYTES":
        contents.bytes_contents.extend(elements(tensor.name, tensor.raw))
    else:
        field = _FIELDS[tensor.datatype][0]
        getattr(contents, field).extend(unpacked(tensor.datatype, tensor.raw))


def read_parameters(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parameters of a message as plain values."""
    return {
        name: getattr(value, kind)
        for name, value in found.items()
        if (kind := value.WhichOneof("parameter_choice")) is not None
    }


def write_parameters(values: Iterable[tuple[str, Any]], out: Any) -> None:
    """Writes plain values into the parameters of a message; what has no form there, as JSON."""
    for name, value in values:
        if isinstance(value, bool):
            out[name].bool_param = value
        elif isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
            if value < 1 << 63:
                out[name].int64_param = value
            else:
                out[name].uint64_param = value
        elif isinstance(value, float):
            out[name].double_param = value
        else:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            out[name].string_param = text


def length_of(number: int, size: int) -> bytes:
    """Returns what stands before a field of so many bytes; its number is below 16."""
    head = bytearray((number << 3 | 2,))
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)


def counted(number: int, content: Buffer) -> tuple[bytes, Buffer]:
    """Returns a field of counted bytes in two pieces; its number is below 16."""
    return length_of(number, len(content)), content
