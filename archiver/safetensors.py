"""The header of a safetensors file: u64 length, JSON, then the tensors' bytes.

Source: the safetensors format description (huggingface/safetensors, README).
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

_MAX_HEADER_BYTES = 100_000_000
_LENGTH = struct.Struct("<Q")
_DTYPE_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
}


def header_problem(path: Path) -> str | None:
    """Says why a safetensors file cannot be read, None if its header is right."""
    try:
        with path.open("rb") as file:
            start = file.read(_LENGTH.size)
            if len(start) < _LENGTH.size:
                return f"not a safetensors file: {len(start)} bytes, expected at least 8"
            (length,) = _LENGTH.unpack(start)
            data_bytes = path.stat().st_size - _LENGTH.size - length
            if length > _MAX_HEADER_BYTES or data_bytes < 0:
                return f"not a safetensors file, or cut off: its header claims {length} bytes"
            header = json.loads(file.read(length))
    except (OSError, ValueError, RecursionError) as error:
        return f"safetensors header cannot be read: {error}"
    if not isinstance(header, dict):
        return f"safetensors header: expected an object, got {type(header).__name__}"
    return _tensors_problem(header, data_bytes)


def _tensors_problem(header: dict[str, Any], data_bytes: int) -> str | None:
    end_bytes = 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        match tensor:
            case {
                "dtype": str(dtype),
                "shape": [*shape],
                "data_offsets": [int(begin), int(end)],
            } if all(isinstance(size, int) and size >= 0 for size in shape):
                expected = math.prod(shape) * _DTYPE_BYTES.get(dtype, 0)
            case _:
                return f"tensor {name!r}: expected dtype, shape and data_offsets"
        if not 0 <= begin <= end <= data_bytes:
            return (
                f"tensor {name!r}: bytes {begin} to {end} are not within the {data_bytes} bytes "
                "of data: is the file complete?"
            )
        if dtype in _DTYPE_BYTES and end - begin != expected:
            return (
                f"tensor {name!r}: expected {expected} bytes for {dtype} {shape}, got {end - begin}"
            )
        end_bytes = max(end_bytes, end)
    if end_bytes != data_bytes:
        return f"expected {end_bytes} bytes of data, got {data_bytes}"
    return None
