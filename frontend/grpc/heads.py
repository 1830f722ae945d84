"""Heads and trailers of calls: from header fields to what they mean, and back to header blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote_from_bytes

from marserve.frontend.errors import BadRequest, ServeError
from marserve.frontend.grpc.framing import ENCODINGS
from marserve.frontend.grpc.statuses import NoSuchMethod, Status
from marserve.frontend.http2.hpack import STATUS_200, Field, encode

_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TYPE = "application/grpc"
_PRIVATE = frozenset({"authorization", "te", "content-type"})
_FORBIDDEN = frozenset({b"connection", b"upgrade", b"transfer-encoding", b"keep-alive"})
_MOST_MESSAGE_BYTES = 6 << 10  # clients take 8 KiB of metadata, with all that stands beside it
_PRINTABLE = bytes(range(0x20, 0x7F)).replace(b"%", b"").decode()

OPENING = STATUS_200 + encode(
    [(b"content-type", _TYPE.encode()), (b"grpc-accept-encoding", ",".join(ENCODINGS).encode())]
)
"""The header block of every response that has messages."""
_OK = encode([(b"grpc-status", b"0")])


class Malformed(Exception):
    """Fields that are no request of HTTP/2."""


class Head:
    """What the first header block of a call says; kept for calls that begin with the same bytes.

    Args:
        fields: As received; None if they were too many.

    Raises:
        Malformed: If they are no request.
    """

    __slots__ = (
        "authorization",
        "encoding",
        "error",
        "headers",
        "http_status",
        "path",
        "resolved",
        "timeout_s",
    )

    def __init__(self, fields: list[Field] | None) -> None:
        self.authorization: str | None = None
        self.headers: dict[str, str] = {}
        self.path = ""
        self.timeout_s: float | None = None
        self.encoding = "identity"
        self.http_status: int | None = None
        self.error: ServeError | None = None
        self.resolved: Any = None  # what the directory has for the path
        if fields is None:
            self.error = TooMuchMetadata("The call has more metadata than this server takes.")
            return
        pseudo, given = _split(fields)
        self.path = pseudo.get(":path", "")
        if not self.path or ":method" not in pseudo or ":scheme" not in pseudo:
            raise Malformed
        kind = given.get("content-type", "")
        if pseudo[":method"] != "POST":
            self.http_status = 405
        elif not kind.startswith(_TYPE) or kind[len(_TYPE) :][:1] not in ("", "+", ";"):
            self.http_status = 415
        self._understand(given)

    def _understand(self, given: dict[str, str]) -> None:
        self.authorization = given.get("authorization")
        self.encoding = given.get("grpc-encoding", "identity")
        if self.encoding not in ENCODINGS:
            known = ", ".join(ENCODINGS)
            self.error = NoSuchMethod(f"grpc-encoding {self.encoding:.40} is none of {known}.")
        if (text := given.get("grpc-timeout")) is not None:
            digits, unit = text[:-1], _UNITS_S.get(text[-1:])
            if unit is None or not (digits.isascii() and digits.isdigit()) or len(digits) > 8:
                self.error = BadRequest(f"grpc-timeout {text:.40} is no time.")
            else:
                self.timeout_s = int(digits) * unit
        self.headers = {
            name: value
            for name, value in given.items()
            if name not in _PRIVATE and not name.startswith("grpc-") and not name.endswith("-bin")
        }


class TooMuchMetadata(ServeError):
    """The fields of a call are longer than the limit."""

    status = 429
    type = "RequestEntityTooLargeException"


def _split(fields: list[Field]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the fields of HTTP/2 itself, which come first, and the others."""
    pseudo: dict[str, str] = {}
    given: dict[str, str] = {}
    for name, value in fields:
        if name in _FORBIDDEN or name != name.lower() or not name:
            raise Malformed
        if name[0] == 0x3A:
            if given or name.decode("latin-1") in pseudo:
                raise Malformed
            pseudo[name.decode("latin-1")] = value.decode("latin-1")
        else:
            given[name.decode("latin-1")] = value.decode("latin-1")
    return pseudo, given


def ok_trailers(id: str) -> bytes:
    """Returns the header block at the end of a call that went well."""
    return _OK + encode([(b"x-request-id", id.encode())])


def trailers(code: Status, message: str, metadata: Iterable[tuple[str, str]]) -> bytes:
    """Returns the header block at the end of a call that failed."""
    fields = [(b"grpc-status", str(int(code)).encode())]
    fields.append((b"grpc-message", quoted(message)))
    fields += [(name.encode(), value.encode("ascii", "replace")) for name, value in metadata]
    return encode(fields)


def quoted(message: str) -> bytes:
    """Returns a text as gRPC puts it into a field: bytes that are not printable as ``%XX``."""
    raw = message.encode("utf-8", "replace")
    whole = quote_from_bytes(raw, _PRINTABLE)
    if len(whole) > _MOST_MESSAGE_BYTES:
        cut = raw[: _MOST_MESSAGE_BYTES // 3].decode("utf-8", "ignore")
        whole = quote_from_bytes(cut.encode(), _PRINTABLE)
    return whole.encode()


def plain(status: int) -> bytes:
    """Returns the header block of a response to what is no gRPC."""
    return encode([(b":status", str(status).encode())])
