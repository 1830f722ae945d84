"""The server's side of one worker: what it was sent, what it answered, and how it ended."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol, cast

from marserve.archiver.errors import MarserveError
from marserve.frontend.in_flight import InFlight
from marserve.frontend.process import ChildProcess, exit_cause, is_stopped
from marserve.frontend.rendezvous import Rendezvous, write_now
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.worker import wire

_LAST_WORDS_S = 0.2
_ANY_BATCH = 1 << 30
_SMOOTHING = 0.2  # weight of the newest batch in the moving average of batch times


class LoadError(MarserveError):
    """A worker could not load its model; the text is the cause.

    Args:
        memory: Whether memory ran out.
        detail: Traceback or last lines of output, for the log and for describe.
    """

    def __init__(self, message: str, memory: bool = False, detail: str = "") -> None:
        super().__init__(message)
        self.memory = memory
        self.detail = detail


class WorkerOwner(Protocol):
    """Who is told what becomes of a worker; all calls come from the event loop."""

    def worker_free(self, worker: Worker) -> None:
        """The worker can take a batch."""

    def request_done(self, request: InferenceRequest, reply: wire.Reply) -> None:
        """The worker has given its last word on a request; its caller is not yet answered."""

    def batch_sent(self, waited_s: float) -> None:
        """A batch is being sent; while the worker was free, its first request waited so long."""

    def stages_done(self, spans: list[tuple[int, float]]) -> None:
        """The handler's stages were called, for the answers just given: number, seconds."""

    def batch_done(self, requests: list[InferenceRequest], took_s: float, handler_s: float) -> None:
        """All requests of a batch are answered, so long after it was sent or could begin."""

    def failure_chunk(self, reply: wire.Reply) -> Chunk:
        """Returns what the caller of a failed request is answered."""
        ...

    def record(self, samples: list[wire.Sample]) -> None:
        """The handler reported metrics."""


class Worker(asyncio.BufferedProtocol):
    """One loaded model in one process.

    Args:
        name: As in the logs, such as ``W-9000-model_1.0``.
        owner: Is told about answers.
        in_flight: Keeps what it is sent; None for one batch at a time.
    """

    def __init__(
        self, name: str, number: int, owner: WorkerOwner, in_flight: InFlight | None = None
    ) -> None:
        self.name = name
        self.number = number
        self.started_at = time.time()
        self.ready = False
        self.stopping = False
        self.idle_since = 0.0
        self.answered = 0  # rows of its last batch
        self._handler_s = 0.0
        self._greeted = False
        self.served = 0
        self.batch_time_s = float("inf")
        self.process: ChildProcess | None = None
        self.lost = asyncio.Event()
        self.doom = ""  # why it was ended by us, in words
        self.ranks: tuple[Worker, ...] = ()  # the others of its group, which answer nothing
        self.follows = False  # of such another one: it hears from rank 0, not from us
        self.fixed_threads = False
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._decoder = wire.Decoder()
        self._loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight = InFlight() if in_flight is None else in_flight
        self._idle = asyncio.Event()
        self._idle.set()
        self._forget_caller = self._caller_gone
        self._rendezvous = Rendezvous()

    # -- life ------------------------------------------------------------------------------------

    async def load(self, process: ChildProcess, load: wire.Load) -> None:
        """Connects to a fresh process and has it load the model; may be cancelled.

        Raises:
            LoadError: If it fails or ends.
        """
        self.process = process
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=process.sock)
        self._write(wire.encode(load))
        self._greeted = True
        await self._loaded
        self.idle_since = time.monotonic()
        self.ready = True

    async def end(self, timeout_s: float) -> int:
        """Closes the socket and waits for the process; returns its exit status."""
        for each in (self, *self.ranks):
            if each._transport is not None:
                each._transport.close()
        if self.process is None:
            return 0
        return await self.process.wait(timeout_s)

    async def drain(self) -> None:
        """Takes no more batches, and returns when those it has are answered."""
        self.stopping = True
        await self._idle.wait()

    async def gone(self) -> None:
        """Waits until the process has ended and all that it said was heard."""
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(self.lost.wait())]
        if self.process is not None:
            ends.append(asyncio.ensure_future(self.process.exited()))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self.stopping = True
            # Its last words may still be on the way; but a child of its own may hold the socket
            # open for as long as it likes.
            await asyncio.wait(ends[:1], timeout=_LAST_WORDS_S)
        finally:
            for end in ends:
                end.cancel()

    @property
    def responsive(self) -> bool:
        """Whether an answer can be hoped for: neither late with one, nor stopped by a signal."""
        return self.ready and not self._in_flight.late and not any(map(is_stopped, self.pids))

    @property
    def pids(self) -> list[int]:
        """Of its process, or of all of its group, by rank."""
        return [w.process.pid for w in (self, *self.ranks) if w.process is not None]

    def kill(self, why: str = "") -> None:
        """Ends the process at once; ``lost`` is set when that is seen.

        Args:
            why: For log and describe, as in "the worker was hung".
        """
        self.doom = why
        if self.process is not None:
            self.process.kill()

    # -- work ------------------------------------------------------------------------------------

    @property
    def busy(self) -> int:
        """Batches that were sent and are not yet answered."""
        return len(self._in_flight.batches)

    @property
    def concurrency(self) -> int:
        """How many requests it takes at the same time; 0 for one batch at a time."""
        return self._in_flight.concurrency

    @property
    def room(self) -> int:
        """How many more requests it takes now; a large number for any batch."""
        if self._in_flight.concurrency:
            return max(0, self._in_flight.concurrency - len(self._in_flight.requests))
        return 0 if self._in_flight.batches else _ANY_BATCH

    def send(self, requests: list[InferenceRequest], now: float) -> None:
        """Sends a batch; the answers go to the requests' callers."""
        bodies: list[wire.Buffer] = []
        heads = []
        for request in requests:
            request.sent_at = now
            request.on_cancel = self._forget_caller
            heads.append(wire.Request(request.id, request.command, request.headers, request.parts))
            bodies += request.bodies
        self.served += len(requests)
        free = not self._in_flight.batches
        waited_s = now - max(requests[0].queued_at, self.idle_since) if free else 0.0
        self._owner.batch_sent(waited_s)
        self._in_flight.add(requests, now)
        self._idle.clear()
        frames = wire.encode(wire.Predict(heads), bodies)
        for rank in self.ranks:
            if not rank.follows:
                rank._write(frames)
        if self._rendezvous.is_worth_it(len(self._in_flight.requests) == 1, self._handler_s):
            self._exchange(frames)
        else:
            self._write(frames)

    def share(self, threads: int) -> None:
        """Has it compute with so many threads from the next batch on."""
        for each in (self, *self.ranks):
            if each._greeted and not self.fixed_threads:  # else its first message will say so
                each._write(wire.encode(wire.Threads(threads)))

    @property
    def in_flight(self) -> InFlight:
        """What it was sent and has not answered."""
        return self._in_flight

    # -- protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop once the socket is watched."""
        # A stream socket gives a Transport; uvloop's classes do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop for a place to read into."""
        return self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop when ``nbytes`` were read."""
        reported: list[wire.Sample] = []
        for message, body in self._decoder.commit(nbytes):
            if isinstance(message, wire.Replies):
                self._handler_s = message.took_s
                self._replies(message.replies, body)
                if message.spans:
                    self._owner.stages_done(message.spans)
            elif isinstance(message, wire.Metrics):
                reported += message.samples  # counted once the callers have their answers
            elif isinstance(message, wire.Loaded):
                self.follows = message.follows
                self._settle(None)
            elif isinstance(message, wire.LoadFailed):
                text = f"{message.type}: {message.message}"
                self._settle(LoadError(text, message.memory, message.traceback))
        if reported:
            self._owner.record(reported)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the process has closed its end, which it does by ending."""
        self.ready = False
        self.stopping = True  # nothing is sent to the dead, nor counts as having been tried
        self.lost.set()
        if not self._loaded.done():
            task = asyncio.ensure_future(self._explain_exit())
            task.add_done_callback(lambda _: None)

    async def _explain_exit(self) -> None:
        code = await self.process.wait(2.0) if self.process else 0
        tail = "\n".join(self.process.tail) if self.process else ""
        text = f"the worker {exit_cause(code)} while it loaded the model"
        self._settle(LoadError(text, code == -9, tail))

    def _caller_gone(self, request: InferenceRequest) -> None:
        """Lets the worker know; if it streams to that caller, it stops at the next piece.

        Not if other ranks run the batch as well: one that stops alone would keep them waiting.
        """
        if request.id in self._in_flight.requests and all(rank.follows for rank in self.ranks):
            self._write(wire.encode(wire.Cancel([request.id])))

    def _settle(self, error: LoadError | None) -> None:
        if self._loaded.done():
            return
        if error is None:
            self._loaded.set_result(None)
        else:
            self._loaded.set_exception(error)

    def _exchange(self, buffers: list[wire.Buffer]) -> None:
        """Writes without the event loop and looks for the reply on the spot."""
        transport, process = self._transport, self.process
        if transport is None or process is None or transport.is_closing():
            return
        left = buffers if transport.get_write_buffer_size() else write_now(process.sock, buffers)
        if left:
            self._write(left)
            return
        size = sum(map(len, buffers))
        if count := self._rendezvous.wait(process.sock, self._decoder.get_buffer(), size):
            self.buffer_updated(count)
            self._rendezvous.linger()

    def _write(self, buffers: list[wire.Buffer]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(buffers)

    def _replies(self, replies: list[wire.Reply], body: bytearray) -> None:
        at = 0
        for reply in replies:
            data: wire.Buffer = body if reply.size == len(body) else body[at : at + reply.size]
            at += reply.size
            request = self._in_flight.requests.get(reply.id)
            if request is None:
                continue
            if reply.last:
                del self._in_flight.requests[reply.id]
                self._owner.request_done(request, reply)
            if reply.failure is None:
                chunk = Chunk(
                    data, reply.status, phrase=reply.phrase, headers=reply.headers, last=reply.last
                )
            else:
                chunk = self._owner.failure_chunk(reply)
            request.send(chunk)
            if reply.last:
                self._count_down(request)
            else:
                self._in_flight.heard(request, time.monotonic())

    def _count_down(self, request: InferenceRequest) -> None:
        """One more request of its batch is done."""
        batch = self._in_flight.done(request)
        if batch is None:
            return
        now = time.monotonic()
        self._in_flight.begin_next(now)
        took = now - batch.began_at
        if self.batch_time_s == float("inf"):
            self.batch_time_s = took
        self.batch_time_s += _SMOOTHING * (took - self.batch_time_s)
        self._owner.batch_done(batch.requests, took, self._handler_s)
        if not self._in_flight.batches:
            self.idle_since = now
            self.answered = sum(request.rows for request in batch.requests)
            self._idle.set()
        self._owner.worker_free(self)
