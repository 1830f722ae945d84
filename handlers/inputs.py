"""From the parts of a request to the row that a handler gets.

A handler sees one dict a request: a plain body under ``body``, a form under its field names. Values
are typed by their own media type: JSON is parsed, text is decoded, the rest stays a ``bytearray``.
"""

from __future__ import annotations

import json
from typing import Any

from marserve.archiver.tensor_marks import MARK
from marserve.handlers.tensors import decode_tensor


def decode_value(
    content_type: str | None, data: bytearray | memoryview, decode: bool = True
) -> Any:
    """Returns a part's value as a handler sees it.

    Args:
        content_type: Media type without parameters, lower case, or None.
        data: The bytes as they came; a view only for tensors.
        decode: Whether to parse JSON and text at all.

    Returns:
        An array for a tensor, parsed JSON for ``application/json``, a ``str`` for ``text/*``, else
        ``data`` itself; also where parsing fails, so that the handler can answer.
    """
    if content_type is None:
        return data
    if content_type.startswith(MARK):
        return decode_tensor(content_type, data)
    if isinstance(data, memoryview):
        data = bytearray(data)
    if not decode:
        return data
    try:
        if content_type == "application/json":
            return json.loads(data)
        if content_type.startswith("text"):
            return data.decode()
    except (ValueError, RecursionError):
        pass  # the handler gets what was sent and can say what is wrong with it
    return data
