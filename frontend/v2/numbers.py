"""Many JSON numbers at a time, without a Python object for each.

From a few hundred numbers on, objects are what a JSON tensor costs. simdjson reads numbers straight
into an array, and orjson writes them straight from one. Whatever is out of the ordinary, such as
deeper nesting, other types or a number that does not fit, is left to the functions of ``tensors``,
which know what to say of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    import numpy
    import simdjson

FEWEST_BYTES = 1024
"""Of JSON text or of a packed tensor: below, Python's own way is quicker."""

_KEPT_BYTES = 256 << 10  # of text: what a parser needs for its largest one stays with it

_FLOATS = {"FP16": "f2", "FP32": "f4", "FP64": "f8"}
_INTEGERS = {"INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8"}
_NATURALS = {"UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8"}
_TYPES = _FLOATS | _INTEGERS | _NATURALS


def packed(datatype: str, shape: Sequence[int], text: Buffer) -> bytes | None:
    """Returns the packed elements of a list of numbers.

    Args:
        datatype: As sent.
        shape: As sent.
        text: The list as JSON; flat, or nested in dimensions of one.

    Returns:
        None if that list is for others to read.
    """
    if len(text) < FEWEST_BYTES or datatype not in _TYPES:
        return None
    written = bytes(text)
    values = _read(_kind(datatype), written) if _is_flat(shape, written) else None
    if values is None or len(values) != prod(shape):
        return None
    import numpy as np

    with np.errstate(over="ignore"):  # as FP32, a number that is too large is infinite
        narrow = values.astype(f"<{_TYPES[datatype]}")
    if datatype == "FP16" and not np.isfinite(narrow).all():
        return None
    if datatype not in _FLOATS and not np.array_equal(narrow, values):
        return None
    return narrow.tobytes()


def listed(datatype: str, raw: Buffer) -> bytes | None:
    """Returns the elements of a packed tensor as a list in JSON.

    Returns:
        None if JSON has no form for them, or they are for others to write.
    """
    if len(raw) < FEWEST_BYTES or datatype not in _TYPES:
        return None
    import numpy as np
    import orjson

    values = np.frombuffer(raw, f"<{_TYPES[datatype]}")
    if datatype in _FLOATS and not np.isfinite(values).all():
        return None
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)


def _kind(datatype: str) -> str:
    if datatype in _FLOATS:
        return "d"
    return "i" if datatype in _INTEGERS else "u"


def _is_flat(shape: Sequence[int], text: bytes) -> bool:
    """Whether a list has numbers in one row alone, in as many brackets as the shape says."""
    depth = text.count(b"[")
    if depth == 1:
        return True
    if depth != len(shape) or any(size != 1 for size in shape[:-1]):
        return False
    return re.match(rb"\s*(?:\[\s*){%d}[^\[\]]*(?:\]\s*){%d}\Z" % (depth, depth), text) is not None


@cache
def _parser() -> simdjson.Parser:
    """The event loop's own: a new one would have its memory to get each time."""
    import simdjson

    return simdjson.Parser()


def _read(kind: str, text: bytes) -> numpy.ndarray[Any, Any] | None:
    import numpy as np

    try:
        parser = _parser() if len(text) <= _KEPT_BYTES else _parser.__wrapped__()
        read: Any = parser.parse(text)
        buffer = read.as_buffer(of_type=kind)
    except (TypeError, ValueError, AttributeError):
        return None
    return np.frombuffer(buffer, {"d": "<f8", "i": "<i8", "u": "<u8"}[kind])
