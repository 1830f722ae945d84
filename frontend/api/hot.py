"""The short way for what a model server does most: inference over plain HTTP/1.1.

Each connection begins here. A request whose head arrives in one piece and which asks for a
prediction, an explanation or V2 inference goes from the read callback straight into the model's
queue, and its answer goes from the worker's read callback straight to the socket: no task, no
future, no request object of a web framework. At the first request of any other kind the connection
is handed, bytes and all, to the aiohttp application of the same address and stays there. Both ways
use the same table of routes, the same functions from bytes to requests and from chunks to heads
(``marserve.frontend.api.http``), so that they mean the same; the head is parsed by llhttp.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from marserve.frontend.api import http, v2
from marserve.frontend.api.body import ArrivingBody
from marserve.frontend.api.hot_head import RequestHead, read_head
from marserve.frontend.api.hot_requests import SHORT, Arrived, Begun, is_here
from marserve.frontend.errors import InternalError, ServeError
from marserve.frontend.types import Chunk
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.api.hot_server import HotServer

_log = logging.getLogger(__name__)

_CLIENT_GONE = 499
_MAX_HEAD_BYTES = 16 << 10  # aiohttp says what is too long in a longer one
_MAX_BACKLOG_BYTES = 64 << 10  # of requests sent ahead of their predecessor's answer
_MAX_UNSENT_BYTES = 16 << 20  # of a stream whose client does not read

_NO_HEAD = RequestHead(bytes(_MAX_HEAD_BYTES + 1))  # longer than what is looked at: like no other


class HotConnection(asyncio.BufferedProtocol):
    """One connection; answers one request at a time, in order.

    Args:
        server: Knows all connections of the address and what they share.
    """

    def __init__(self, server: HotServer) -> None:
        self._server = server
        self._front = server.front
        self._heads = server.heads
        self._transport: Any = None
        self._remote = "unix"
        self._head = _NO_HEAD
        self._id = ""
        self._begun = 0.0
        self._request: Begun | None = None
        self._keep_alive = True
        self._streaming = False
        self._body: ArrivingBody | None = None
        self._arriving_at = 0.0
        self._backlog = bytearray()
        self.closing = False
        self._unsent = 0
        self.active_at = time.monotonic()

    # -- connection ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop for a new connection."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self._remote = f"{peer[0]}:{peer[1]}"

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the client is gone: its request gives its place up."""
        self._server.remove(self)
        request, self._request = self._request, None
        if request is not None:
            request.cancel()
            if not self._streaming:  # else it was counted when its answer began
                self._record(_CLIENT_GONE)
        self._transport = None

    @property
    def busy(self) -> bool:
        """Whether a request is being received or answered."""
        return self._request is not None or self._body is not None

    def close(self) -> None:
        """Closes the connection, after the answer if one is due."""
        self.closing = True
        if not self.busy and self._transport is not None:
            self._transport.close()

    def check(self, now: float, idle_s: float, stall_s: float, receive_s: float) -> None:
        """Gives the connection up if nothing has moved on it, or a body has come, for too long."""
        quiet_s = now - self.active_at
        if self._transport is None:
            return
        if self._body is not None:
            got = self._body.received
            if quiet_s >= stall_s:
                self._too_slow(http.SlowBody.stopped(got, stall_s))
            elif now - self._arriving_at >= receive_s:
                self._too_slow(http.SlowBody.endless(got, receive_s))
        elif self._request is not None or quiet_s < min(idle_s, stall_s):
            return
        elif unsent := self._transport.get_write_buffer_size():
            if unsent == self._unsent:
                self._transport.abort()  # the client does not read its answer
            self._unsent, self.active_at = unsent, now  # it does, slowly
        elif quiet_s >= idle_s:
            self._transport.close()

    def _too_slow(self, error: ServeError) -> None:
        self._keep_alive = False
        self.send(self._refusal(error))

    # -- request ---------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop for a place to read into, which ``buffer_updated`` empties at once."""
        return self._server.scratch if self._body is None else self._body.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop when ``nbytes`` were read."""
        self.active_at = time.monotonic()
        if self._body is not None:
            body = self._body.take(nbytes)
            if body is not None:
                self._body = None
                self._submit(body)
        elif self._request is not None:
            self._backlog += self._server.scratch[:nbytes]
            if len(self._backlog) > _MAX_BACKLOG_BYTES:
                self._transport.pause_reading()
        else:
            self._begin(self._server.scratch[:nbytes])

    def _begin(self, data: memoryview) -> None:
        """Takes the first bytes of a request."""
        text = bytes(data[:_MAX_HEAD_BYTES])
        if not text.startswith(self._head.text) and not self._read(text):
            self._hand_over(data)
            return
        self._begun = time.perf_counter()
        self._id = http.new_request_id()
        self._keep_alive = self._head.keep_alive
        end, size = len(self._head.text), self._head.size
        if len(data) >= end + size:
            self._backlog += data[end + size :]
            self._submit(bytes(data[end : end + size]))
        elif not self._allowed():
            self._hand_over(data)  # aiohttp refuses before the body has come
        else:
            self._body, self._arriving_at = ArrivingBody(size, data[end:]), self.active_at

    def _allowed(self) -> bool:
        """Whether the request has the key it needs, so that a stranger's body is not collected."""
        head, auth = self._head, self._front.services.auth
        try:
            auth.check(head.match.route.token or "", head.header(b"authorization"))
        except ServeError:
            return False
        return True

    def _read(self, text: bytes) -> bool:
        """Reads the head that a text begins with; false if the request is not for here."""
        end = text.find(b"\r\n\r\n") + 4
        if end < 4 or not text.startswith(b"POST "):
            return False
        head = read_head(text[:end], self._front)
        if head is None or not is_here(self._front.services, head.match.route.answer, head.fields):
            return False
        self._head = head
        return True

    def _submit(self, body: Buffer) -> None:
        """Hands a complete request to its model."""
        head, services = self._head, self._front.services
        route = head.match.route
        try:
            if services.auth.enabled:
                services.auth.check(route.token or "", head.header(b"authorization"))
            begun = SHORT[route.answer](Arrived(services, head, self._id, body, self))
            self._request = None if begun.answered else begun
        except ServeError as error:
            self.send(self._refusal(error))
        except Exception:
            _log.exception("request %s: POST %r failed", self._id, head.target)
            self.send(self._refusal(InternalError.of_request(self._id)))

    def _refusal(self, error: ServeError) -> Chunk:
        """Returns an error in the form of the surface that was asked."""
        return v2.refusal(error) if self._head.target.startswith(b"/v2/") else error.chunk()

    def _hand_over(self, data: Buffer) -> None:
        """Gives the connection away, with what has arrived of the request."""
        transport, protocol = self._transport, self._server.fallback()
        self._server.remove(self)
        self._transport = None
        transport.pause_reading()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()  # in the way of a protocol that is given what was read
        protocol.data_received(bytes(data))

    # -- answer ----------------------------------------------------------------------------------

    def send(self, chunk: Chunk) -> None:
        """Writes the next chunk of the answer, or the whole of it."""
        if self._transport is None:
            return
        self.active_at = time.monotonic()
        try:
            if self._streaming or not chunk.last:
                self._stream(chunk)
            else:
                self._write_whole(chunk)
        except ServeError as error:  # the handler asked for something that HTTP cannot carry
            if self._request is not None:
                self._request.cancel()  # what may still come of a stream must not follow its error
            self._write_whole(self._refusal(error))
            self._done()
            return
        except Exception:
            _log.exception("request %s: its answer cannot be written", self._id)
            self._transport.abort()  # a client that waits for nothing would be worse off
        if chunk.last:
            self._done()

    def _write_whole(self, chunk: Chunk) -> None:
        head, body = self._heads.whole(chunk, self._id, self._keep_alive and not self.closing)
        self._transport.writelines((head, body, *chunk.tail) if len(body) else (head,))
        self._record(chunk.status)

    def _stream(self, chunk: Chunk) -> None:
        """One HTTP chunk a piece; the first decides on the head."""
        if self._streaming and chunk.failure is not None:
            # The status is sent; breaking off is the one way left to say that this is no end.
            _log.warning("request %s: stream broke: %s", self._id, chunk.failure.message)
            self._transport.abort()
            return
        pieces: list[Buffer] = []
        if not self._streaming:
            pieces.append(self._heads.chunked(chunk, self._id))
            self._streaming = True
            self._record(chunk.status)
        if len(chunk.body):
            pieces += (b"%x\r\n" % len(chunk.body), chunk.body, b"\r\n")
        if chunk.last:
            pieces.append(b"0\r\n\r\n")
        if self._transport.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            self._transport.abort()
        else:
            self._transport.writelines(pieces)

    def _record(self, status: int) -> None:
        services = self._front.services
        services.telemetry.response(status)
        services.access_log.write(
            self._remote,
            "POST",
            self._head.target.decode("ascii", "replace"),
            "HTTP/1.1",
            status,
            (time.perf_counter() - self._begun) * 1e3,
        )

    def _done(self) -> None:
        """The answer is written; the connection is free for the next request."""
        self._request = self._body = None
        self._streaming = False
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.closing or not self._keep_alive:
            transport.close()
        elif self._backlog:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begins a request that was sent ahead of its predecessor's answer."""
        if self._transport is None or self.busy or not self._backlog:
            return
        data, self._backlog = bytes(self._backlog), bytearray()
        self._transport.resume_reading()
        self._begin(memoryview(data))
