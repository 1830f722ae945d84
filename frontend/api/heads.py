"""Response heads as bytes, for the surface that writes to its socket itself."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus

from marserve.frontend.api import http
from marserve.frontend.types import Chunk
from marserve.worker.wire import Buffer

_BODILESS = frozenset({204, 304})
_MOST_KNOWN = 1000
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
        self._known: dict[tuple[tuple[str, str], ...], bytes] = {}
        self._second = 0
        self._date = b""

    def whole(self, chunk: Chunk, request_id: str, keep_alive: bool) -> tuple[bytes, Buffer]:
        """Returns head and body of an answer that consists of one chunk.

        Raises:
            InternalError: If the handler set a status or header that HTTP cannot carry.
        """
        usual = chunk.status == 200 and keep_alive and not chunk.phrase and chunk.failure is None
        if usual:
            begin = self._with(chunk.headers) if chunk.headers else self._usual
            count = len(chunk.body) + sum(map(len, chunk.tail))
            rest = b"%b\r\nContent-Length: %d\r\n%b\r\n"
            return begin + rest % (request_id.encode(), count, self._now()), chunk.body
        body = http.render_body(chunk)
        whole = len(body) + sum(map(len, chunk.tail))
        size = "" if chunk.status in _BODILESS else f"Content-Length: {whole}\r\n"
        close = "" if keep_alive else "Connection: close\r\n"
        return self._head(chunk, request_id, size + close), body

    def chunked(self, chunk: Chunk, request_id: str) -> bytes:
        """Returns the head of an answer that comes in pieces.

        Raises:
            InternalError: If the handler set a status or header that HTTP cannot carry.
        """
        return self._head(chunk, request_id, "Transfer-Encoding: chunked\r\n")

    def _with(self, headers: dict[str, str]) -> bytes:
        """The beginning of a usual head with these headers, which come again and again."""
        key = tuple(headers.items())
        begin = self._known.get(key)
        if begin is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            head = http.render_head(Chunk(headers=headers), "", self._constant)
            lines = "".join(f"{name}: {value}\r\n" for name, value in head.headers[1:])
            begin = self._known[key] = f"HTTP/1.1 200 OK\r\n{lines}x-request-id: ".encode()
        return begin

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
