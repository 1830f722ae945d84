"""Requests that are images or sound: the file itself, base64 in JSON, or the field of a form."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from marserve.handlers.errors import RequestError

_BASE64_KEYS = ("b64", "data", "body", "inputs")


@dataclass(frozen=True, slots=True)
class MediaBatch:
    """What a model of images or sound reads of some requests.

    Args:
        inputs: By name; the first dimension of each is the row.
    """

    inputs: dict[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def to(self, device: torch.device) -> MediaBatch:
        """Returns the batch with its tensors on a device."""
        if device.type == "cpu":
            return self
        return MediaBatch({n: t.to(device, non_blocking=True) for n, t in self.inputs.items()})


def read_media(row: Any, key: str) -> dict[str, Any]:
    """Returns the fields of a request, its file under ``key``.

    Args:
        row: What the server hands to a handler. The body may be the file, its base64 as text, or an
            object with the base64 under ``key`` (or ``b64``); a form may hold the file as a field.
        key: What the file is: ``image`` or ``audio``.

    Returns:
        ``bytes`` under ``key``, or whatever else than text stood there; the other fields as they
        were sent, those of a form as text.

    Raises:
        RequestError: If there is no file, or its base64 is broken.
    """
    value = row
    if isinstance(row, Mapping):
        value = row.get("data")
        if value is None:
            value = row.get("body")
        if value is None:
            value = {name: _field(name, each, key) for name, each in row.items()}
    fields = _fields(value, key)
    name = next((name for name in (key, *_BASE64_KEYS) if name in fields), None)
    if name is None:
        found = ", ".join(str(name) for name in list(fields)[:10]) or "no keys"
        raise RequestError(f'the request has no "{key}" (found: {found}); expected {_usage(key)}')
    file = fields.pop(name)
    if isinstance(file, str):
        file = read_base64(file, key)
    if isinstance(file, (bytes, bytearray, memoryview)):
        file = bytes(file)
        if not file:
            raise RequestError(f"the request is empty; expected {_usage(key)}")
    return {**fields, key: file}


def read_base64(text: str, key: str) -> bytes:
    """Decodes base64, also as a ``data:`` URL.

    Raises:
        RequestError: If it is none.
    """
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f'"{key}" is text but no base64: {error}') from None


def _fields(value: Any, key: str) -> dict[str, Any]:
    if isinstance(value, (bytes, bytearray, memoryview)) and bytes(value[:1]) == b"{":
        value = bytes(value).decode(errors="replace")  # no image or sound begins so
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"the request starts with a brace but is no JSON: {error}") from None
    return dict(value) if isinstance(value, Mapping) else {key: value}


def _field(name: str, value: Any, key: str) -> Any:
    """A form's fields are bytes, whatever they mean; all but the file mean text."""
    if name == key or not isinstance(value, (bytes, bytearray)):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _usage(key: str) -> str:
    return f'the bytes of the file as the body, or {{"{key}": "<its base64>"}}'
