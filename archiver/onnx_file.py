"""The inputs and outputs that an ONNX file declares, read from its protobuf without its weights."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from marserve.archiver.errors import ArchiveError
from marserve.archiver.signature import TensorSpec

# TensorProto.DataType, by number.
_DATATYPES = {
    1: "FP32",
    2: "UINT8",
    3: "INT8",
    4: "UINT16",
    5: "INT16",
    6: "INT32",
    7: "INT64",
    8: "BYTES",
    9: "BOOL",
    10: "FP16",
    11: "FP64",
    12: "UINT32",
    13: "UINT64",
    16: "BF16",
}
# Numbers of the fields that are read: of the model, its graph, a value, its type, its shape.
_GRAPH, _INITIALIZER, _INPUT, _OUTPUT = 7, 5, 11, 12
_NAME, _TYPE, _TENSOR, _ELEMENT, _SHAPE, _DIM, _DIM_VALUE = 1, 2, 1, 1, 2, 1, 1
_TENSOR_NAME = 8
_MAX_NAME_BYTES = 4096

Field = tuple[int, int | memoryview]


def onnx_tensors(path: Path) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Returns the declared inputs and outputs, in order; -1 for dimensions without a number.

    Inputs that have a value of their own in the file are left out: a request need not have them.

    Raises:
        ArchiveError: If the file is no ONNX model.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = memoryview(data)
            try:
                return _read(view)
            finally:
                view.release()
    except (OSError, ValueError, IndexError, UnicodeDecodeError, TypeError) as error:
        raise ArchiveError(f"{path.name}: is no ONNX model: {error}") from None


def _read(view: memoryview) -> tuple[list[TensorSpec], list[TensorSpec]]:
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    weights: set[str] = set()
    graphs = 0
    for number, graph in _fields(view):
        if number != _GRAPH:
            continue
        graphs += 1
        for kind, value in _fields(_bytes(graph)):
            if kind == _INITIALIZER:
                weights.update(_text(v) for n, v in _fields(_bytes(value)) if n == _TENSOR_NAME)
            elif kind in (_INPUT, _OUTPUT):
                (inputs if kind == _INPUT else outputs).append(_spec(_bytes(value)))
    if graphs != 1:
        raise ValueError("it has no graph")
    return [each for each in inputs if each.name not in weights], outputs


def _spec(value: memoryview) -> TensorSpec:
    name, datatype, shape = "", "BYTES", list[int]()
    for number, part in _fields(value):
        if number == _NAME:
            name = _text(part)
        elif number == _TYPE:
            for kind, tensor in _fields(_bytes(part)):
                if kind != _TENSOR:
                    raise ValueError(f"{name}: is no tensor")
                for key, item in _fields(_bytes(tensor)):
                    if key == _ELEMENT:
                        datatype = _datatype(name, item)
                    elif key == _SHAPE:
                        shape = [
                            _size(_bytes(dim)) for n, dim in _fields(_bytes(item)) if n == _DIM
                        ]
    return TensorSpec(name, datatype, tuple(shape))


def _datatype(name: str, number: int | memoryview) -> str:
    if not isinstance(number, int) or number not in _DATATYPES:
        raise ValueError(f"{name}: has a datatype that has no name")
    return _DATATYPES[number]


def _size(dim: memoryview) -> int:
    """A dimension's number; -1 if it has a name, or nothing."""
    for number, value in _fields(dim):
        if number == _DIM_VALUE and isinstance(value, int):
            return value if 0 <= value < 1 << 62 else -1
    return -1


def _text(value: int | memoryview) -> str:
    return bytes(_bytes(value)[:_MAX_NAME_BYTES]).decode()


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise TypeError("a message was expected where a number stands")
    return value


def _fields(view: memoryview) -> Iterator[Field]:
    """Yields number and value of each field: varints as numbers, bytes unread."""
    at, size = 0, len(view)
    while at < size:
        tag, at = _varint(view, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(view, at)
            yield number, value
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            length, at = _varint(view, at)
            if length > size - at:
                raise ValueError("it is cut off")
            yield number, view[at : at + length]
            at += length
        else:
            raise ValueError("it is no protobuf")


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("it is no protobuf")
