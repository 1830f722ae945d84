"""What a connection sends: frames at once, and the data of its streams as its client has room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from marserve.frontend.http2 import frames
from marserve.frontend.http2.budget import Budget
from marserve.frontend.http2.errors import Code, ConnectionFault
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.http2.stream import Stream

_SLICE_BYTES = 64 << 10  # of one stream, while others wait
_MOST_UNSENT = 1 << 20  # bytes that the kernel does not take, until nothing more is read
_FORGET_TABLE = b"\x20"  # a table of no fields: we keep none


class Outbox:
    """The sending half of a connection.

    Args:
        budget: Earns with every frame of a stream.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._transport: Any = None
        self._sink: Any = None  # the same, while anything may be sent
        self._waiting: dict[int, Stream] = {}
        self._flushing = False
        self._prefix = b""
        self._written = 0
        self.window = frames.DEFAULT_WINDOW
        self.first_window = frames.DEFAULT_WINDOW
        self.frame_bytes = frames.DEFAULT_FRAME_SIZE
        self.paused = False

    def open(self, transport: Any) -> None:
        """Begins to send."""
        self._transport = self._sink = transport
        transport.set_write_buffer_limits(_MOST_UNSENT)

    def finish(self) -> None:
        """Sends nothing more."""
        self._sink = None
        self._waiting.clear()

    def close(self) -> None:
        """The connection is closed."""
        self.finish()
        self._transport = None

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken."""
        return 0 if self._transport is None else int(self._transport.get_write_buffer_size())

    @property
    def taken(self) -> int:
        """Bytes that the kernel has taken: what moves, moves this."""
        return self._written - self.unsent

    def write(self, data: bytes) -> None:
        """Sends a frame."""
        if self._sink is not None:
            self._written += len(data)
            self._sink.write(data)

    def writelines(self, pieces: Sequence[Buffer]) -> None:
        """Sends frames of a stream, in pieces."""
        if self._sink is not None:
            self._budget.earn()
            self._written += sum(map(len, pieces))
            self._sink.writelines(pieces)

    def headers(self, number: int, block: bytes, flags: int = 0) -> bytes:
        """Returns the HEADERS frame of a block."""
        if self._prefix:
            block, self._prefix = self._prefix + block, b""
        flags |= frames.END_HEADERS
        return frames.head(len(block), frames.HEADERS, flags, number) + block

    def takes(self, size: int, window: int) -> bool:
        """Tells whether so many bytes of a stream can be sent at once, in one frame."""
        return size <= window and size <= self.window and size <= self.frame_bytes

    def wants(self, stream: Stream) -> None:
        """A stream has something to send."""
        self._waiting[stream.number] = stream
        self.flush()

    def forget(self, stream: Stream) -> None:
        """A stream has nothing more to send."""
        self._waiting.pop(stream.number, None)

    def flush(self) -> None:
        """Sends what waits, in turns, as far as the client has room."""
        if self._flushing:
            return
        self._flushing = True
        try:
            waiting = self._waiting
            while waiting and self.window > 0 and not self.paused:
                number = next(iter(waiting))
                stream = waiting.pop(number)
                if stream.window <= 0:
                    continue  # its own window brings it back
                if stream.push(min(self.window, self.frame_bytes, _SLICE_BYTES)):
                    waiting[number] = stream
                elif stream.open and stream.receiver is not None and not stream.crowded:
                    stream.receiver.drained()
        finally:
            self._flushing = False

    def grow(self, size: int) -> None:
        """The client takes so many bytes more on the connection.

        Raises:
            ConnectionFault: If it cannot be.
        """
        self.window += size
        if not size:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a window grows by nothing")
        if self.window > frames.LARGEST_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "the window is too large")
        self.flush()

    def widen(self, stream: Stream, size: int) -> bool:
        """The client takes so many bytes more on a stream; returns False if it cannot be."""
        stream.window += size
        if stream.window > frames.LARGEST_WINDOW:
            return False
        if stream.unsent and stream.window > 0:
            self._waiting[stream.number] = stream
        return True

    def set(self, settings: dict[int, int], streams: Sequence[Stream]) -> None:
        """Takes the client's settings.

        Raises:
            ConnectionFault: If they make the window of a stream too large.
        """
        self.frame_bytes = settings.get(frames.MAX_FRAME_SIZE, self.frame_bytes)
        if settings.get(frames.HEADER_TABLE_SIZE, frames.DEFAULT_WINDOW) < frames.TABLE_SIZE:
            self._prefix = _FORGET_TABLE  # its decoder waits to be told that the table shrank
        first = settings.get(frames.INITIAL_WINDOW_SIZE, self.first_window)
        if first != self.first_window:
            change, self.first_window = first - self.first_window, first
            for stream in streams:
                if not self.widen(stream, change):
                    raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window is too large")
        self.write(frames.SETTINGS_ACK)
        self.flush()
