"""Tensors as the second protocol of KServe writes them: name, datatype, shape and flat data."""

from __future__ import annotations

import json
from typing import Any

from marserve.handlers.errors import RequestError

_KINDS = {"b": "BOOL", "i": "INT", "u": "UINT", "f": "FP"}


def tensor_name(tensor: Any) -> str:
    """Returns the name of a request's input.

    Raises:
        RequestError: If it has none.
    """
    if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
        raise RequestError('an input has no "name"; expected name, datatype, shape and data')
    return str(tensor["name"])


def tensor_values(tensor: dict[str, Any]) -> Any:
    """Returns the values of a request's input, as lists in its shape; the first of ``BYTES``.

    Raises:
        RequestError: If there are no data, or they do not fit the shape.
    """
    import numpy

    data, name = tensor.get("data"), tensor_name(tensor)
    if data is None or data == []:
        raise RequestError(f'input {name!r} has no "data"')
    if tensor.get("datatype") == "BYTES":
        return data[0] if isinstance(data, list) else data
    try:
        values = numpy.array(data)
        return values.reshape(tensor.get("shape", values.shape)).tolist()
    except (ValueError, TypeError) as error:
        raise RequestError(f"input {name!r}: data do not fit the shape: {error}") from None


def named_tensor(name: str, result: Any) -> dict[str, Any]:
    """Returns a handler's result as an output.

    Args:
        name: Of the output.
        result: A tensor, array, number or list of them; anything else becomes text.
    """
    values = _array(result)
    if values is None:
        text = result.decode(errors="replace") if isinstance(result, bytearray | bytes) else result
        text = text if isinstance(text, str) else json.dumps(text)
        return {"name": name, "datatype": "BYTES", "data": [text], "shape": [1]}
    kind = _KINDS.get(values.dtype.kind, "BYTES")
    sized = kind in ("INT", "UINT", "FP")
    return {
        "name": name,
        "datatype": f"{kind}{values.dtype.itemsize * 8}" if sized else kind,
        "data": values.ravel().tolist(),
        "shape": list(values.shape),
    }


def _array(result: Any) -> Any:
    """An array of at least one dimension; None for what is no regular array of values."""
    import numpy

    if hasattr(result, "detach"):
        result = result.detach().cpu()
        result = result.float().numpy() if "bfloat16" in str(result.dtype) else result.numpy()
    try:
        values = numpy.atleast_1d(numpy.asarray(result))
    except (ValueError, OverflowError):  # ragged, or beyond 64 bits
        return None
    return values if values.dtype.kind in "biufU" else None
