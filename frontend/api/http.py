"""HTTP semantics as pure functions: from bytes to requests, from chunks to heads and bodies.

Every HTTP surface uses these, whatever library moves the bytes, so that all of them mean the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from random import getrandbits
from typing import TYPE_CHECKING, NamedTuple

from marserve.frontend.api.forms import (
    Fields,
    looks_urlencoded,
    media_type,
    parse_multipart,
    parse_urlencoded,
)
from marserve.frontend.errors import BadRequest, InternalError, ServeError, TooLarge
from marserve.frontend.types import Chunk
from marserve.worker.wire import Buffer, Part

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig

Headers = list[tuple[str, str]]

JSON_TYPE = "application/json"
TIMEOUT_HEADER = "x-request-timeout"
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]*", re.ASCII)

NO_CACHE: Headers = [
    ("Pragma", "no-cache"),
    ("Cache-Control", "no-cache; no-store, must-revalidate, private"),
    ("Expires", "Thu, 01 Jan 1970 00:00:00 UTC"),
]
_FRAMING = frozenset(
    {"connection", "content-length", "keep-alive", "trailer", "transfer-encoding", "upgrade"}
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BODILESS = frozenset({204, 304})


class SlowBody(ServeError):
    """The client did not send its body in time."""

    status = 408
    type = "RequestTimeoutException"

    @classmethod
    def stopped(cls, size: int, seconds: float) -> SlowBody:
        """Nothing more came for so long after ``size`` bytes."""
        return cls(f"The request body stopped after {size} bytes for {seconds:.0f} s.")

    @classmethod
    def endless(cls, size: int, seconds: float) -> SlowBody:
        """All of it took longer than ``receive_timeout``."""
        return cls(
            f"The request body was not complete after {seconds:g} s: {size} bytes came"
            " (receive_timeout in config.properties)."
        )


class Head(NamedTuple):
    """Status line and headers of an answer; an empty phrase stands for the status's own."""

    status: int
    phrase: str
    headers: Headers


def new_request_id() -> str:
    """Returns a random UUID (version 4), made without the cost of the uuid module's class."""
    text = f"{getrandbits(128):032x}"
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def parse_body(
    content_type: str | None, body: Buffer, query: Iterable[tuple[str, str]] = ()
) -> Fields:
    """Splits a request body into parts and their bytes, in the same order.

    Args:
        content_type: The Content-Type header as sent, or None.
        body: The whole body, possibly empty.
        query: Decoded query parameters that count as inputs; they come before the body's own parts.

    Returns:
        One part a form field; for every other kind of body a single part named ``body``.

    Raises:
        BadRequest: If a form is malformed.
    """
    kind = media_type(content_type)
    if kind == "multipart/form-data" and content_type is not None:
        parts, bodies = parse_multipart(content_type, body)
    elif kind == "application/x-www-form-urlencoded" and looks_urlencoded(body):
        parts, bodies = parse_urlencoded(body)
    else:
        parts, bodies = [Part("body", len(body), kind)], [body]
    values = [(name, value.encode("utf-8", "replace")) for name, value in query]
    if values:
        parts = [Part(name, len(value)) for name, value in values] + parts
        bodies = [value for _, value in values] + bodies
    return parts, bodies


def parse_timeout(value: str | None) -> float | None:
    """Returns the client's own time limit in seconds, from the ``x-request-timeout`` header.

    Raises:
        BadRequest: If the value is no positive finite number.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise BadRequest(f"{TIMEOUT_HEADER} must be a positive number of seconds, not {value!r}.")
    return seconds


def decode_headers(raw: Iterable[tuple[bytes, bytes]], keyed: bool = True) -> dict[str, str]:
    """Returns headers as the client spelt them; the last of equal names wins.

    Args:
        raw: Names and values.
        keyed: Whether ``Authorization`` holds a key of this server: handlers do not get it then.
    """
    if keyed:
        raw = (pair for pair in raw if len(pair[0]) != 13 or pair[0].lower() != b"authorization")
    return {_text(name): _text(value) for name, value in raw}


def check_size(size: int, limit: int) -> None:
    """Refuses a body larger than ``max_request_size``.

    Args:
        size: Bytes announced, or received so far.
        limit: ``max_request_size``, bytes.

    Raises:
        TooLarge: Naming limit, setting and size.
    """
    if size > limit:
        raise TooLarge(
            f"The request body has at least {size} bytes; the limit is {limit} bytes "
            "(max_request_size in config.properties)."
        )


def cors_headers(config: ServerConfig) -> Headers:
    """Returns the CORS headers that are added to every response, none where none is configured."""
    values = (
        ("Access-Control-Allow-Origin", config.cors_allowed_origin),
        ("Access-Control-Allow-Methods", config.cors_allowed_methods),
        ("Access-Control-Allow-Headers", config.cors_allowed_headers),
    )
    return [(name, value) for name, value in values if value]


def render_head(chunk: Chunk, request_id: str, constant: Sequence[tuple[str, str]]) -> Head:
    """Returns status, phrase and headers of the answer that ``chunk`` begins.

    Args:
        chunk: The first chunk, or the only one.
        request_id: Sent as ``x-request-id``.
        constant: What every response carries: ``NO_CACHE`` and CORS; a handler's own value wins.

    Raises:
        InternalError: If the handler set a status or a header that HTTP cannot carry.
    """
    headers: Headers = [("x-request-id", request_id)]
    if not chunk.headers:
        headers += constant
    else:
        own = {name.lower() for name in chunk.headers}
        headers += [pair for pair in constant if pair[0].lower() not in own]
        headers += _checked(chunk.headers)
    if chunk.failure is not None:
        headers.append(("Content-Type", JSON_TYPE))
    if not 200 <= chunk.status <= 599:
        raise InternalError(f"The handler set the status {chunk.status}, which is not 200 to 599.")
    return Head(chunk.status, _UNSAFE.sub(" ", chunk.phrase), headers)


def render_body(chunk: Chunk) -> Buffer:
    """Returns the bytes of a chunk: its body, or the JSON document of its failure."""
    if chunk.failure is not None:
        kind = chunk.failure.type
        name = kind if kind.endswith("Exception") else InternalError.type
        return error_body(chunk.status, name, chunk.failure.message, chunk.failure.traceback)
    return b"" if chunk.status in _BODILESS else chunk.body


def error_body(status: int, type: str, message: str, traceback: str = "") -> bytes:
    """Returns the JSON document of an error; with a traceback if there is one to be told."""
    more = {"traceback": traceback} if traceback else {}
    return json_body({"code": status, "type": type, "message": message, **more})


def json_body(value: object) -> bytes:
    """Returns JSON as the API has always written it: two spaces and a final newline."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def reason(status: int) -> str:
    """Returns the usual phrase of a status, empty for an unknown one."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _checked(headers: dict[str, str]) -> Headers:
    """A handler's headers without those of the framing, which are the server's own."""
    out: Headers = []
    for name, value in headers.items():
        if name.lower() in _FRAMING or name.lower() == "x-request-id":
            continue
        if not _TOKEN.fullmatch(name) or _UNSAFE.search(value):
            raise InternalError(
                f"The handler set the response header {name!r} to an invalid value."
            )
        out.append((name, value))
    return out


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
