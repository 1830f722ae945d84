"""One call: messages in and out of its stream, its time limit, and how it ends."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from marserve.frontend.api.exchange import STALL_S
from marserve.frontend.api.http import SlowBody, new_request_id
from marserve.frontend.errors import BadRequest, DeadlineExceeded, ServeError
from marserve.frontend.grpc import heads
from marserve.frontend.grpc.framing import PREFIX, MessageReader, prefix
from marserve.frontend.grpc.heads import Head
from marserve.frontend.grpc.statuses import Status
from marserve.frontend.grpc.talk import Talk
from marserve.frontend.http2.errors import Code
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.grpc.calls import Calls, Method
    from marserve.frontend.http2.stream import Stream

_MOST_QUEUED_BYTES = 1 << 20  # of messages that nobody has taken yet; then the client must wait
_OVERHEAD_BYTES = 256  # that a message counts for besides its own
_SMALL_BYTES = 16 << 10  # of a message that is not worth being accounted for
_CLIENT_GONE = 499


class Call:
    """A call, as its method sees it; a receiver of its stream.

    Args:
        stream: Carries it.
        head: Its first header block.
        method: What was called.
        calls: Turns errors into statuses, and counts.
    """

    __slots__ = (
        "_calls",
        "_deadline",
        "_ended",
        "_held",
        "_message",
        "_opened",
        "_owed",
        "_pumping",
        "_queue",
        "_queued",
        "_reader",
        "_receiving_at",
        "_seen_sent",
        "_stream",
        "_talk",
        "_task",
        "_timer",
        "_wants_message",
        "_wants_room",
        "alive",
        "begun",
        "head",
        "id",
        "method",
        "on_gone",
    )

    def __init__(self, stream: Stream, head: Head, method: Method, calls: Calls) -> None:
        self._stream = stream
        self._calls = calls
        self.head = head
        self.method = method
        self.id = new_request_id()
        self.begun = self._receiving_at = time.monotonic()
        self._deadline = None if head.timeout_s is None else self.begun + head.timeout_s
        self.alive = True
        self.on_gone: Callable[[], None] | None = None
        self._message: Buffer | None = None
        self._reader: MessageReader | None = None
        self._queue: deque[Buffer] = deque()
        self._queued = 0
        self._owed = 0
        self._held = 0
        self._ended = False
        self._opened = False
        self._seen_sent = (0, self.begun)
        self._talk: Talk | None = None
        self._pumping = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wants_message: asyncio.Future[None] | None = None
        self._wants_room: asyncio.Future[None] | None = None

    # -- what methods ask ------------------------------------------------------------------------

    @property
    def remote(self) -> str:
        """The client's address."""
        return self._stream.remote

    def time_remaining(self) -> float | None:
        """Returns the seconds until the client gives up; None if it never does."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def work(self, answering: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine that answers; it is cancelled when the client is gone or time is up."""
        self._task = asyncio.get_running_loop().create_task(answering)
        self._watch()

    def listen(self, talk: Talk) -> None:
        """Hands messages to who answers them, as they come."""
        self._talk, self.on_gone = talk, talk.gone
        self._watch()

    def pump(self) -> None:
        """Hands on what has come, as far as it is taken."""
        talk = self._talk
        if talk is None or self._pumping:
            return
        self._pumping = True
        while self._queue and talk.ready and self.alive and not self._stream.crowded:
            talk.take(self._next())
        self._pumping = False
        if self._ended and not self._queue and self.alive:
            self._talk = None
            talk.ended()

    def _watch(self) -> None:
        left = self.time_remaining()
        if left is not None:
            late = DeadlineExceeded("The time limit of the call has passed.")
            self._timer = asyncio.get_running_loop().call_later(left, self.lose, late)

    def __aiter__(self) -> Call:
        return self

    async def __anext__(self) -> Buffer:
        """Returns the next message of the client."""
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._wants_message = asyncio.get_running_loop().create_future()
            await self._wants_message
        return self._next()

    def _next(self) -> Buffer:
        message = self._queue.popleft()
        self._queued -= len(message) + _OVERHEAD_BYTES
        self._account()
        self._pay()
        return message

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken."""
        return self._stream.unsent

    def push(self, pieces: Sequence[Buffer], size: int) -> None:
        """Sends a message, of ``size`` bytes in pieces, now or when the client has room."""
        if self.alive:
            self._open()
            self._stream.send((prefix(size), *pieces), size + PREFIX.size)

    async def write(self, message: Buffer) -> None:
        """Sends a message and waits for room; whoever writes from several tasks has a lock."""
        self._open()
        size = len(message)
        self._stream.send((prefix(size), message), size + PREFIX.size)
        while self._stream.crowded and self._stream.open:
            self._wants_room = asyncio.get_running_loop().create_future()
            await self._wants_room

    def finish(self, pieces: Sequence[Buffer], size: int) -> None:
        """Answers with one message, of ``size`` bytes in pieces."""
        if self.alive:
            end = heads.ok_trailers(self.id)
            framed = (prefix(size), *pieces)
            self._stream.whole(heads.OPENING, framed, size + PREFIX.size, end)
            self._done(200, Status.OK)

    def close(self) -> None:
        """Ends an answer of several messages, or of none."""
        if self.alive:
            self._open()
            self._stream.end(heads.ok_trailers(self.id))
            self._done(200, Status.OK)

    def fail(self, error: ServeError) -> None:
        """Ends the call with an error."""
        if not self.alive:
            return
        code = self._calls.code(error)
        extra = [("x-request-id", self.id)]
        if error.retry_after_s is not None:
            extra.append(("grpc-retry-pushback-ms", str(error.retry_after_s * 1000)))
        block = heads.trailers(code, error.message, extra)
        self._stream.end(block if self._opened else heads.OPENING + block)
        self._done(error.status, code)

    def refuse(self, http_status: int) -> None:
        """Answers what is no gRPC."""
        self._stream.end(heads.plain(http_status))
        self._done(http_status, Status.INTERNAL)

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            self._stream.head(heads.OPENING)

    def _done(self, status: int, code: Status) -> None:
        self.alive = False
        self.on_gone = None
        self._release()
        if self._timer is not None:
            self._timer.cancel()
        self._calls.record(self, status, code)

    def _cancel(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()

    # -- what its stream says --------------------------------------------------------------------

    def data(self, piece: bytes) -> None:
        """Takes what has arrived."""
        if not self.alive:
            return
        size = len(piece)
        if self.method.one and self._reader is None and size >= PREFIX.size:
            flag, length = PREFIX.unpack_from(piece)
            first = self._message is None and not flag and length <= _SMALL_BYTES
            if first and length == size - PREFIX.size and length <= self._calls.limit:
                self._message = piece[PREFIX.size :]
                return
        try:
            self._receive(piece)
        except ServeError as error:
            self.lose(error)

    def ended(self) -> None:
        """The client has sent all."""
        self._ended = True
        if not self.alive:
            return
        if self._reader:
            self.lose(BadRequest("The last message of the call is cut off."))
        elif not self.method.one:
            _wake(self._wants_message)
            self.pump()
        elif self._message is None:
            self.lose(BadRequest("The call has no message; its method takes one."))
        else:
            message, self._message = self._message, None
            self._release()
            self.method.start(self, message)

    def gone(self) -> None:
        """The client is gone, or has lost interest."""
        if self.alive:
            gone, self.on_gone = self.on_gone, None
            self._done(_CLIENT_GONE, Status.CANCELLED)
            if gone is not None:
                gone()
        self._cancel()

    def drained(self) -> None:
        """There is room to write again."""
        _wake(self._wants_room)
        self.pump()

    def stalled(self, now: float) -> None:
        """Gives up what does not come, or is not taken."""
        if self._reader if not self.method.one else not self._ended:
            receive_s = self._calls.receive_s
            if self.alive and self.method.one and now - self.begun >= receive_s:
                self.lose(SlowBody.endless(self._reader_size(), receive_s))
            elif self.alive and now - self._receiving_at >= STALL_S:
                self.lose(SlowBody.stopped(self._reader_size(), STALL_S))
        before, since = self._seen_sent
        if self._stream.sent != before or not self._stream.unsent:
            self._seen_sent = self._stream.sent, now
        elif now - since >= STALL_S:
            self._stream.reset(Code.CANCEL)
            self.gone()

    def _reader_size(self) -> int:
        return 0 if self._reader is None else self._reader.size

    def _receive(self, piece: bytes) -> None:
        reader, stream, one = self._reader, self._stream, self.method.one
        if reader is None:
            expect = stream.expect if one else None
            reader = MessageReader(self._calls.limit, self.head.encoding, expect)
            self._reader = reader
        self._receiving_at = time.monotonic()
        for message in reader.feed(piece):
            if not one:
                self._queue.append(message)
                self._queued += len(message) + _OVERHEAD_BYTES
            elif self._message is not None:
                raise BadRequest("The call has a second message; its method takes one.")
            else:
                self._message = message
        self._account()
        self._owed += len(piece)
        self._pay()
        if self._queue:
            _wake(self._wants_message)
            self.pump()

    def _account(self) -> None:
        """Notes what is held for the call, of all that the server holds."""
        held = self._queued + self._reader_size()
        if self.method.one and self._message is not None:
            held += len(self._message)
        change, self._held = held - self._held, held
        self._calls.ledger.change(change)

    def _release(self) -> None:
        if self._held:
            self._calls.ledger.change(-self._held)
            self._held = 0

    def _pay(self) -> None:
        """Lets the client send on, unless too much waits."""
        if self._owed and self._queued < _MOST_QUEUED_BYTES:
            self._stream.credit(self._owed)
            self._owed = 0

    def lose(self, error: ServeError) -> None:
        """Ends the call with an error, and what was begun for it."""
        gone = self.on_gone
        self.fail(error)
        if gone is not None:
            gone()
        self._cancel()

    def break_off(self) -> None:
        """Ends the call because of the exception that is being handled, which is logged."""
        self._calls.broken(self)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
