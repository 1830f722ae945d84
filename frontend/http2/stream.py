"""One stream of a connection: what is sent on it waits here until the client has room for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from marserve.frontend.http2 import frames
from marserve.frontend.http2.errors import Code, StreamFault
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.http2.inbox import Inbox

WINDOW = 1 << 20
"""Bytes that a client may send on a stream before the application has taken any."""
_LOW_BYTES = 64 << 10  # unsent bytes below which whoever writes may go on


class Receiver(Protocol):
    """What happens on a stream goes there, called from the event loop; must not block."""

    def data(self, piece: bytes) -> None:
        """Takes what has arrived; says ``stream.credit`` when it is done with it."""

    def ended(self) -> None:
        """The client has sent all."""

    def gone(self) -> None:
        """The stream was cut: by the client, or with its connection. Nothing more can be sent."""

    def drained(self) -> None:
        """There is room to write again."""

    def stalled(self, now: float) -> None:
        """Called every few seconds, for limits on time; ``now`` is monotonic, in seconds."""


class Stream:
    """A stream that a client opened.

    Args:
        inbox: Of the connection that it belongs to.
        number: Odd.
    """

    __slots__ = (
        "_inbox",
        "_out",
        "_pending",
        "_trailers",
        "_uncredited",
        "allowance",
        "number",
        "open",
        "receiver",
        "receiving",
        "sent",
        "unsent",
        "window",
    )

    def __init__(self, inbox: Inbox, number: int) -> None:
        self._inbox = inbox
        self._out = inbox.out
        self.number = number
        self.window = inbox.out.first_window
        self.allowance = WINDOW
        self.receiver: Receiver | None = None
        self.receiving = True
        self.open = True
        self.unsent = self.sent = 0
        self._pending: deque[Buffer] = deque()
        self._trailers: bytes | None = None
        self._uncredited = 0

    @property
    def remote(self) -> str:
        """The client's address, without its port."""
        return self._inbox.remote

    # -- sending ---------------------------------------------------------------------------------

    def head(self, block: bytes) -> None:
        """Sends the response's header block."""
        if self.open:
            self._out.write(self._out.headers(self.number, block))

    def whole(self, block: bytes, pieces: Sequence[Buffer], size: int, trailers: bytes) -> None:
        """Sends a whole response: head, ``size`` bytes in pieces, and trailers."""
        out, number = self._out, self.number
        if not self.open:
            return
        if not out.takes(size, self.window):
            self.head(block)
            self.send(pieces, size)
            self.end(trailers)
            return
        out.window -= size
        begin = out.headers(number, block) + frames.head(size, frames.DATA, 0, number)
        out.writelines((begin, *pieces, out.headers(number, trailers, frames.END_STREAM)))
        self._inbox.answered(self)

    def send(self, pieces: Sequence[Buffer], size: int) -> None:
        """Sends ``size`` bytes, at once or when the client has room."""
        if self.open and size:
            self._pending.extend(piece for piece in pieces if len(piece))
            self.unsent += size
            self._out.wants(self)

    def end(self, trailers: bytes) -> None:
        """Ends the response, after all that is unsent."""
        if self.open:
            self._trailers = trailers
            if not self._pending:
                self._finish()

    def push(self, most: int) -> bool:
        """Sends one frame of at most so many bytes; returns whether more can be sent.

        Called by the outbox.
        """
        pieces, size = self._cut(min(most, self.window))
        self.window -= size
        self.unsent -= size
        self.sent += size
        self._out.window -= size
        self._out.writelines((frames.head(size, frames.DATA, 0, self.number), *pieces))
        if self._pending:
            return self.window > 0
        if self._trailers is not None:
            self._finish()
        return False

    @property
    def crowded(self) -> bool:
        """Whether so much is unsent that whoever writes should wait."""
        return self.unsent > _LOW_BYTES or self._out.paused

    def reset(self, code: Code) -> None:
        """Cuts the stream; its receiver is not told."""
        if self.open:
            self._inbox.cut(self, code)

    def _cut(self, most: int) -> tuple[list[Buffer], int]:
        pieces: list[Buffer] = []
        size = 0
        while self._pending and size < most:
            piece = self._pending.popleft()
            room = most - size
            if len(piece) > room:
                view = memoryview(piece)
                self._pending.appendleft(view[room:])
                piece = view[:room]
            pieces.append(piece)
            size += len(piece)
        return pieces, size

    def _finish(self) -> None:
        self._out.write(self._out.headers(self.number, self._trailers or b"", frames.END_STREAM))
        self._inbox.answered(self)

    # -- receiving -------------------------------------------------------------------------------

    def take(self, size: int) -> None:
        """Counts so many bytes that have arrived.

        Raises:
            StreamFault: If the client was not allowed to send them.
        """
        self.allowance -= size
        if self.allowance < 0:
            raise StreamFault(self.number, Code.FLOW_CONTROL_ERROR)

    def credit(self, size: int) -> None:
        """Lets the client send so many bytes more."""
        if not self.receiving or not self.open:
            return
        self._uncredited += size
        if self._uncredited >= WINDOW // 2 or self.allowance < WINDOW // 4:
            update = frames.window_update(self.number, self._uncredited)
            self._out.write(update)
            self.allowance += self._uncredited
            self._uncredited = 0

    def expect(self, size: int) -> None:
        """Lets the client send a message of so many bytes without waiting in between."""
        if self.receiving and self.open and size > self.allowance:
            self._out.write(frames.window_update(self.number, size - self.allowance))
            self.allowance = size
