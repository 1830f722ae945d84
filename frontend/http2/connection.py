"""One HTTP/2 connection, the server's side (RFC 9113): on the event loop, in callbacks alone."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from marserve.frontend.http2 import frames
from marserve.frontend.http2.budget import Budget
from marserve.frontend.http2.errors import Code, ConnectionFault
from marserve.frontend.http2.inbox import Inbox
from marserve.frontend.http2.outbox import Outbox

if TYPE_CHECKING:
    from marserve.frontend.http2.listener import Listener

_log = logging.getLogger(__name__)

_LAST_WORDS_S = 1.0  # for a client to read why the connection is closed


class Connection(asyncio.Protocol):
    """A connection.

    Args:
        listener: Knows all connections of the address, and the application.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: Any = None
        self._farewell: asyncio.TimerHandle | None = None
        self._faulty = False
        self.unwelcome = False
        self.opened_at = time.monotonic()
        costs = Budget(self.opened_at)
        self.out = Outbox(costs)
        application, streams = listener.application, listener.most_streams
        self.inbox = Inbox(application, self.out, costs, streams, self._close_if_done)
        self._feed = self.inbox.feed

    # -- the loop's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop for a new connection."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.inbox.remote = f"{peer[0]}:{peer[1]}"
        self.out.open(transport)
        self.inbox.open()
        if self.unwelcome:
            self.end(Code.ENHANCE_YOUR_CALM, "too many connections (max_connections)")

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the client is gone: its streams are cut."""
        self._transport = None
        self.out.close()
        if self._farewell is not None:
            self._farewell.cancel()
        self._listener.remove(self)
        self.inbox.close()

    def data_received(self, data: bytes) -> None:
        """Called by the loop with what has arrived."""
        if self.inbox.closed:
            return
        try:
            self._feed(data)
        except ConnectionFault as fault:
            self.end(fault.code, str(fault))
        except Exception:
            _log.exception("a connection from %s failed", self.inbox.remote)
            self.end(Code.INTERNAL_ERROR, "the server failed on this connection")

    def eof_received(self) -> bool:
        """Called by the loop when the client sends no more: then it takes nothing more either."""
        return False

    def pause_writing(self) -> None:
        """Called by the loop when the client does not read: then nothing more is read from it."""
        self.out.paused = True
        if self._transport is not None and not self.inbox.closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by the loop when the client has read."""
        self.out.paused = False
        if self._transport is None:
            return
        self._transport.resume_reading()
        self.out.flush()
        for stream in list(self.inbox.streams.values()):
            if stream.receiver is not None and not stream.crowded:
                stream.receiver.drained()

    # -- what the listener asks ------------------------------------------------------------------

    def ping(self) -> None:
        """Asks the client whether it is there; it says so with the next thing that it sends."""
        self.out.write(frames.ping(b"\0" * 8, ack=False))

    def leave(self) -> None:
        """Takes no more streams, as soon as the client knows; closes after the last answer."""
        inbox = self.inbox
        if not inbox.greeted:
            self.end(Code.NO_ERROR, "")
        elif inbox.last is None and inbox.on_pong is None and not inbox.closed:
            # What it has sent meanwhile is still taken: the last stream is named when it knows.
            self.out.write(frames.goaway(frames.LARGEST_WINDOW, Code.NO_ERROR))
            inbox.on_pong = self._name_last
            self.ping()

    def end(self, code: Code, text: str) -> None:
        """Says why and closes; what was asked is given up."""
        self._faulty = True
        if not self.inbox.closed:
            self.out.write(frames.goaway(self.inbox.latest, code, text))
            self._close()

    def abort(self) -> None:
        """Closes without a word."""
        if self._transport is not None:
            self._transport.abort()

    def _name_last(self) -> None:
        self.inbox.last = self.inbox.latest
        self.out.write(frames.goaway(self.inbox.last, Code.NO_ERROR))
        self._close_if_done()

    def _close_if_done(self) -> None:
        inbox = self.inbox
        if inbox.last is not None and not inbox.streams and not inbox.closed:
            self._close()

    def _close(self) -> None:
        """Sends what is unsent, and then waits a moment for the client to have read it.

        To close while the client still sends would take it the last words.
        """
        self.inbox.close()
        self.out.finish()
        transport = self._transport
        if transport is None:
            return
        if self.out.paused:
            transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()
        self._farewell = asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._hang_up)

    def _hang_up(self) -> None:
        if self.out.unsent and not self._faulty:
            self._farewell = asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._hang_up)
        else:
            self.abort()
