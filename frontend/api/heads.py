"""Response heads as bytes, for the surface that writes to its socket itself."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus

from marserve.frontend.api import http
from marserve.frontend.types import Chunk
from marserve.worker.wire import Buffer

_BODILESS = frozenset({204, 304})
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class HeadWriter:
    """Writes heads; the constant part of the usual one is made once.

    Args:
        constant: Headers of every response.
    """

    def __init__(self, constant: http.Headers) -> None:
        self._constant = constant
        lines = "".join(f"{name}: {value}\r\n" for name, value in constant)
        self._usual = f"HTTP/1.1 200 OK\r\n{lines}x-request-id: ".encode("latin-1")
        self._second = 0
        self._date = b""

    def whole(self, chunk: Chunk, request_id: str, keep_alive: bool) -> tuple[bytes, Buffer]:
        """Returns head and body of an answer that consists of one chunk.

        Raises:
            InternalError: If the handler set a status or header that HTTP cannot carry.
        """
        date = self._now()
        plain = chunk.status == 200 and not chunk.headers and not chunk.phrase
        if plain and keep_alive and chunk.failure is None:
            rest = b"%b\r\nContent-Length: %d\r\n%b\r\n"
            return self._usual + rest % (request_id.encode(), len(chunk.body), date), chunk.body
        body = http.render_body(chunk)
        size = "" if chunk.status in _BODILESS else f"Content-Length: {len(body)}\r\n"
        close = "" if keep_alive else "Connection: close\r\n"
        return self._head(chunk, request_id, size + close), body

    def chunked(self, chunk: Chunk, request_id: str) -> bytes:
        """Returns the head of an answer that comes in pieces.

        Raises:
            InternalError: If the handler set a status or header that HTTP cannot carry.
        """
        return self._head(chunk, request_id, "Transfer-Encoding: chunked\r\n")

    def _head(self, chunk: Chunk, request_id: str, framing: str) -> bytes:
        head = http.render_head(chunk, request_id, self._constant)
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.headers)
        phrase = head.phrase or _PHRASES.get(head.status, "")
        text = f"HTTP/1.1 {head.status} {phrase}\r\n{lines}{framing}"
        return text.encode("utf-8") + self._now() + b"\r\n"

    def _now(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._date = b"Date: " + formatdate(second, usegmt=True).encode() + b"\r\n"
        return self._date
