"""From the row of one request to the fields that a text task reads.

A body may be plain text, JSON, or a Python literal as the sample files of TorchServe's example hold
it; a form's fields serve as well. One malformed row is a ``RequestError`` about that row alone.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from marserve.handlers.errors import RequestError

_LITERAL_LIMIT_CHARS = 1 << 20  # the parser of literals needs many times the text's memory
_SHOWN_CHARS = 60


def read_value(row: Any) -> str | dict[str, Any]:
    """Returns what a request carries: a plain text or an object's fields.

    Args:
        row: What the server hands to a handler: a dict with ``data`` or ``body``, else the fields
            of a form.

    Raises:
        RequestError: If it is neither text nor an object.
    """
    value = row
    if isinstance(row, Mapping):
        value = row.get("data")
        if value is None:
            value = row.get("body")
        if value is None:
            value = {key: _decode(field) for key, field in row.items()}
    value = _decode(value)
    if isinstance(value, str):
        value = _read_text(value)
    if isinstance(value, (str, dict)):
        return value
    raise RequestError(
        f"the request holds {_kind(value)}; expected text, or one JSON object for one request"
        " (to have several answered together, send several requests: they are batched)"
    )


def text_field(fields: Mapping[str, Any], key: str, example: str) -> str:
    """Returns a field that must be text.

    Args:
        fields: The fields of a request.
        key: Which one.
        example: What a right request looks like, for the message.

    Raises:
        RequestError: If it is absent, no text, or no valid Unicode.
    """
    if key not in fields:
        found = ", ".join(str(name) for name in list(fields)[:10]) or "no keys"
        raise RequestError(f'the request has no "{key}" (found: {found}); expected {example}')
    value = _decode(fields[key])
    if not isinstance(value, str):
        raise RequestError(f'"{key}" is {_kind(value)}; expected {example}')
    return check_text(value)


def check_text(text: str) -> str:
    """Returns the text if it is valid Unicode.

    Raises:
        RequestError: If it holds half of a surrogate pair, which no tokenizer takes.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"the text is no valid Unicode: a lone surrogate at character {error.start}"
        ) from None
    return text


def check_keys(fields: Iterable[Any], known: Iterable[str]) -> None:
    """Refuses fields that nobody would read.

    Raises:
        RequestError: If there is one.
    """
    known = list(known)
    unknown = [str(key) for key in fields if key not in known]
    if unknown:
        names = ", ".join(unknown[:10])
        raise RequestError(f"unknown parameter: {names} (known: {', '.join(known)})")


def whole_number(fields: Mapping[str, Any], key: str, default: int) -> int:
    """Returns a field that must be a whole number of at least 1; a form's is text.

    Args:
        fields: The fields of a request.
        key: Which one.
        default: What holds if it is absent.

    Raises:
        RequestError: If it is something else.
    """
    value = fields.get(key)
    if value is None:
        return default
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f'"{key}" is {value!r:.80}; expected a whole number of at least 1')
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError as error:
            raise RequestError(
                f"the body is no UTF-8 text: byte {error.start} cannot be decoded"
            ) from None
    return value


def _read_text(text: str) -> Any:
    """A text in braces is meant as an object; what is broken there must not pass for plain text."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return text
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError) as error:
        return _read_literal(stripped, error)


def _read_literal(text: str, why_no_json: Exception) -> Any:
    try:
        if len(text) > _LITERAL_LIMIT_CHARS:
            raise ValueError("too long for a literal")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # about "\d" and its like
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise RequestError(
            f"the request starts with a brace but is neither JSON ({why_no_json}) nor a Python"
            f' literal: {text[:_SHOWN_CHARS]!r}; send such a text itself as {{"text": "..."}}'
        ) from None
    if not isinstance(value, dict):
        raise RequestError(f"the request is a Python {type(value).__name__}; expected an object")
    return value


def _kind(value: object) -> str:
    names = {list: "a list", dict: "an object", type(None): "nothing", bool: "a boolean"}
    return names.get(type(value), f"a value of type {type(value).__name__}")
