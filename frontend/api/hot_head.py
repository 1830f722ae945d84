"""The head of a request that is answered the short way, read once for all that are sent alike.

A client that asks again and again sends the same bytes again: its connection compares them and
keeps what was read of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools

from marserve.frontend.api import http
from marserve.frontend.errors import ServeError

if TYPE_CHECKING:
    from marserve.frontend.api.app import Front
    from marserve.frontend.api.routing import Match

_UNUSUAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"content-encoding"})


class RequestHead:
    """A head; the parser calls its ``on_`` methods.

    Args:
        text: All of it, with the empty line at its end.

    Attributes:
        raw: Its headers, as sent.
        fields: The first of each name, the names in lower case.
        target: Path and query, as sent.
        match: Its route, and what its path says.
        keep_alive: Whether the client means to ask again.
        size: Of the body, in bytes.
    """

    __slots__ = ("_decoded", "fields", "keep_alive", "match", "raw", "size", "target", "text")

    match: Match

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.raw: list[tuple[bytes, bytes]] = []
        self.fields: dict[bytes, bytes] = {}
        self.target = b""
        self.keep_alive = True
        self.size = 0
        self._decoded: dict[str, str] | None = None

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self.raw.append((name, value))
        self.fields.setdefault(name.lower(), value)  # of equal names the first, as aiohttp

    def header(self, name: bytes) -> str | None:
        """Returns a header as text, by its name in lower case."""
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")

    def headers(self, keyed: bool) -> dict[str, str]:
        """Returns the headers that a handler sees, as ``http.decode_headers`` does; to be kept."""
        if self._decoded is None:
            self._decoded = http.decode_headers(self.raw, keyed)
        return self._decoded.copy()


def read_head(text: bytes, front: Front) -> RequestHead | None:
    """Reads the head of a POST request; None if aiohttp is to have it, and to say what is wrong.

    Args:
        text: Up to the empty line, and with it.
        front: Of the address; has the routes and the limits.
    """
    head = RequestHead(text)
    parser = httptools.HttpRequestParser(head)
    try:
        parser.feed_data(text)
    except httptools.HttpParserError:
        return None
    if parser.get_http_version() != "1.1" or not _UNUSUAL.isdisjoint(head.fields):
        return None
    path = head.target.partition(b"?")[0]
    try:
        head.match = front.router.match("POST", path.decode("ascii"))
        head.size = int(head.fields.get(b"content-length", b"0"))
    except (ServeError, ValueError):
        return None
    if head.size > front.services.config.max_request_size:
        return None
    head.keep_alive = parser.should_keep_alive()
    return head
