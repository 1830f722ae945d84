"""What a connection receives: frames, and what each of them does to streams and windows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from marserve.frontend.http2 import budget, frames
from marserve.frontend.http2.blocks import Blocks
from marserve.frontend.http2.budget import Budget
from marserve.frontend.http2.errors import Code, ConnectionFault, StreamFault
from marserve.frontend.http2.hpack import Field
from marserve.frontend.http2.outbox import Outbox
from marserve.frontend.http2.stream import WINDOW, Receiver, Stream

_WINDOW = 16 << 20  # bytes that a client may send on all its streams before we look at them
_FRAME_BYTES = 1 << 20  # of the longest frame that we take; a message of 4 MiB has four


class Application(Protocol):
    """What connections are for."""

    def read(self, fields: list[Field] | None) -> Any:
        """Returns what a request's fields mean, None if they are too many; may be kept."""
        ...

    def begin(self, stream: Stream, head: Any) -> Receiver:
        """Takes a new stream with what ``read`` returned."""
        ...


class Inbox:
    """The receiving half of a connection, and its streams.

    Args:
        application: Takes new streams.
        out: The sending half.
        costs: What frames without content are taken from.
        most_streams: Open at the same time.
        emptied: Called when a stream has ended.
    """

    def __init__(
        self,
        application: Application,
        out: Outbox,
        costs: Budget,
        most_streams: int,
        emptied: Callable[[], None],
    ) -> None:
        self._application = application
        self._budget = costs
        self._most_streams = most_streams
        self._emptied = emptied
        self._reader = frames.FrameReader(_FRAME_BYTES)
        self._blocks = Blocks(application.read)
        self._greeting: bytes | None = b""
        self._allowance = _WINDOW
        self.out = out
        self.remote = "unix"
        self.streams: dict[int, Stream] = {}
        self.latest = 0
        self.last: int | None = None  # the stream after which none is taken any more
        self.closed = False
        self.on_pong: Callable[[], None] | None = None
        self.active_at = time.monotonic()

    @property
    def greeted(self) -> bool:
        """Whether the client has said that it speaks HTTP/2."""
        return self._greeting is None

    @property
    def half_read(self) -> bool:
        """Whether a frame or a header block has begun and not ended."""
        return bool(self._reader) or self._blocks.open

    def open(self) -> None:
        """Says what the client may do."""
        settings = {
            frames.MAX_CONCURRENT_STREAMS: self._most_streams,
            frames.INITIAL_WINDOW_SIZE: WINDOW,
            frames.MAX_FRAME_SIZE: _FRAME_BYTES,
            frames.MAX_HEADER_LIST_SIZE: self._blocks.most_bytes,
        }
        more = frames.window_update(0, _WINDOW - frames.DEFAULT_WINDOW)
        self.out.write(frames.settings(settings) + more)

    def feed(self, data: bytes) -> None:
        """Takes what has arrived.

        Raises:
            ConnectionFault: If the connection cannot go on.
        """
        self.active_at = time.monotonic()
        if self._greeting is not None:
            data = self._greet(self._greeting + data)
        for kind, flags, number, payload, padding in self._reader.feed(data):
            if self.closed:
                return
            try:
                if kind == frames.DATA and not self._blocks.open:
                    self._data(flags, number, payload, padding)
                elif kind in (frames.HEADERS, frames.CONTINUATION) or self._blocks.open:
                    if self._blocks.take(kind, flags, number, payload):
                        self._headers(number, self._blocks.ended, self._blocks.head())
                else:
                    self._control(kind, flags, number, payload)
            except StreamFault as fault:
                self._cut_off(fault)

    def close(self) -> None:
        """Takes nothing more; all streams are cut."""
        self.closed = True
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            stream.open = False
            if stream.receiver is not None:
                stream.receiver.gone()

    # -- what streams say ------------------------------------------------------------------------

    def answered(self, stream: Stream) -> None:
        """A stream's response is sent to its end."""
        self._forget(stream)
        stream.receiver = None
        if stream.receiving:  # of what it still sends, nothing is read
            self.out.write(frames.rst_stream(stream.number, Code.NO_ERROR))
        self._emptied()

    def cut(self, stream: Stream, code: Code) -> None:
        """Ends a stream at once."""
        self._forget(stream)
        self.out.write(frames.rst_stream(stream.number, code))
        self._emptied()

    # -- frames ----------------------------------------------------------------------------------

    def _greet(self, begun: bytes) -> bytes:
        """Takes the first bytes of the connection; returns what follows the preface."""
        size = len(frames.PREFACE)
        if begun[:size] != frames.PREFACE[: len(begun)]:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "this port speaks HTTP/2 alone")
        self._greeting = begun if len(begun) < size else None
        return begun[size:]

    def _data(self, flags: int, number: int, payload: bytes, padding: int) -> None:
        size = len(payload) + padding
        self._allowance -= size
        if self._allowance < _WINDOW // 2:
            if self._allowance < 0:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "more than the window allows")
            self.out.write(frames.window_update(0, _WINDOW - self._allowance))
            self._allowance = _WINDOW
        stream = self.streams.get(number)
        if stream is None:
            self._check_known(number)
            if not size:
                self._spend(budget.FRAME)
            return
        if not stream.receiving:
            raise StreamFault(number, Code.STREAM_CLOSED)
        receiver = stream.receiver
        assert receiver is not None  # noqa: S101  (a stream in the table has begun)
        if size:
            stream.take(size)
            if padding:
                stream.credit(padding)
            receiver.data(payload)
        elif not flags & frames.END_STREAM:
            self._spend(budget.FRAME)
        if flags & frames.END_STREAM and stream.open:
            stream.receiving = False
            receiver.ended()

    def _headers(self, number: int, ended: bool, head: Any) -> None:
        stream = self.streams.get(number)
        if stream is not None:  # trailers, of which gRPC's clients have none
            if not ended or not stream.receiving:
                raise StreamFault(number, Code.PROTOCOL_ERROR)
            stream.receiving = False
            assert stream.receiver is not None  # noqa: S101
            stream.receiver.ended()
            return
        if number <= self.latest:
            self._check_known(number)
            self._spend(budget.RESET)
            return
        if not number & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"stream {number} is not a client's")
        self.latest = number
        if self.last is not None:
            return  # it was told that nothing more is taken
        if len(self.streams) >= self._most_streams:
            raise StreamFault(number, Code.REFUSED_STREAM)
        stream = Stream(self, number)
        self.streams[number] = stream
        stream.receiving = not ended
        stream.receiver = self._application.begin(stream, head)
        if not stream.open:
            stream.receiver = None
        elif ended:
            stream.receiver.ended()

    def _control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        self._spend(budget.FRAME)
        if kind == frames.WINDOW_UPDATE:
            self._grow(number, frames.number(payload) & frames.LARGEST_WINDOW)
        elif kind == frames.RST_STREAM:
            self._reset(number)
        elif kind == frames.PRIORITY:
            pass  # nothing is served before anything else
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a client promises nothing")
        elif number and kind in (frames.SETTINGS, frames.PING, frames.GOAWAY):
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"frame {kind} is the connection's")
        elif kind == frames.SETTINGS:
            self._settings(flags, payload)
        elif kind == frames.PING:
            self._ping(flags, payload)
        # GOAWAY: the client opens no more streams, and closes when it has its answers

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "settings are acknowledged in none")
            return
        self._spend(budget.SETTINGS)
        self.out.set(frames.read_settings(payload), list(self.streams.values()))

    def _ping(self, flags: int, payload: bytes) -> None:
        if not flags & frames.ACK:
            self.out.write(frames.ping(payload, ack=True))
            return
        then, self.on_pong = self.on_pong, None
        if then is not None:
            then()

    def _grow(self, number: int, size: int) -> None:
        if number:
            stream = self.streams.get(number)
            if stream is None:
                self._check_known(number)
            elif not size:
                raise StreamFault(number, Code.PROTOCOL_ERROR)
            elif not self.out.widen(stream, size):
                raise StreamFault(number, Code.FLOW_CONTROL_ERROR)
            self.out.flush()
        else:
            self.out.grow(size)

    def _reset(self, number: int) -> None:
        self._spend(budget.RESET)
        stream = self.streams.get(number)
        if stream is None:
            self._check_known(number)
            return
        self._forget(stream)
        if stream.receiver is not None:
            stream.receiver.gone()
        self._emptied()

    def _cut_off(self, fault: StreamFault) -> None:
        """The client made a mistake on one stream; as dear as one that it cuts itself."""
        self._spend(budget.RESET)
        stream = self.streams.get(fault.stream)
        if stream is None:
            self.out.write(frames.rst_stream(fault.stream, fault.code))
            return
        self.cut(stream, fault.code)
        if stream.receiver is not None:
            stream.receiver.gone()

    def _check_known(self, number: int) -> None:
        """Frames may come late for a stream that is closed, but none before it is open."""
        if number > self.latest or not number & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"stream {number} is not open")

    def _spend(self, cost: float) -> None:
        self._budget.spend(cost, self.active_at)

    def _forget(self, stream: Stream) -> None:
        stream.open = False
        self.streams.pop(stream.number, None)
        self.out.forget(stream)
