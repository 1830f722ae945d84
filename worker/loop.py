"""A worker's life: load one model, then answer batches until the server closes the socket."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from marserve.archiver.errors import MarserveError
from marserve.handlers.context import Context
from marserve.handlers.metrics import HandlerMetrics
from marserve.worker import compat, wire
from marserve.worker.asking import Asking
from marserve.worker.asynchronous import Concurrent
from marserve.worker.channel import Channel
from marserve.worker.continuous import ContinuousBatch
from marserve.worker.execute import Answer, CallersGone, Executor, out_of_memory
from marserve.worker.loader import load_handler
from marserve.worker.redaction import plain, without_paths
from marserve.worker.stages import Spans, watch

_LARGE_BYTES = 64 << 10
_QUICK_S = 0.001
_GAUGE_INTERVAL_S = 0.2  # a gauge shows its last value: more often than this nobody can tell


class Loop:
    """Serves one loaded model over one channel.

    Args:
        channel: Connected to the server.
        load: What to serve, and how.
    """

    def __init__(self, channel: Channel, load: wire.Load) -> None:
        self._channel = channel
        self._metrics = HandlerMetrics(load.model_name, load.metrics_config)
        context = Context(
            load.model_name,
            load.model_dir,
            load.manifest,
            load.batch_size,
            load.gpu_id,
            load.limit_max_image_pixels,
            self._metrics,
            load.model_config,
        )
        context.ask = Asking(load.asked_at)
        context.is_gone = self._is_gone
        self._rank = load.rank
        self._concurrent = bool(load.model_config.get("asyncCommunication"))
        self._continuous = bool(load.model_config.get("continuousBatching"))
        self._runner = asyncio.Runner()  # makes its event loop when there is a coroutine
        handle = load_handler(load.handler, load.model_dir, context, self._runner, self._concurrent)
        self._spans: Spans = []
        watch(handle, self._spans)
        self._context = context
        self.follow: Callable[[], None] | None = _follow(handle) if load.rank else None
        self._handle = _enveloped(handle, load.envelope)
        self._make_executor = partial(
            Executor,
            self._handle,
            emit=self._emit,
            decode=load.decode_input_request,
            max_response_bytes=load.max_response_bytes,
            rerun=load.ranks == 1 or _follow(handle) is not None,
            tracebacks=load.tracebacks,
            spans=self._spans,
        )
        self._executor = self._make_executor(context)
        self._sending = threading.Lock()
        self._gauged_at = 0.0
        self._requests: list[wire.Request] = []
        self._gone: set[str] = set()

    def run(self) -> None:
        """Answers batches until the server closes the socket."""
        try:
            if self._concurrent:
                self._run_concurrently()
            elif self._continuous:
                self._run_continuously()
            else:
                self._run_in_turn()
        finally:
            self._runner.close()

    def close(self) -> None:
        """Lets the handler end what it has begun, if it has a method ``close``."""
        owner = getattr(self._handle, "__self__", getattr(self._handle, "handler", None))
        close = getattr(owner, "close", None)
        if callable(close):
            close()

    def _is_gone(self, id: str) -> bool:
        """Whether the caller of a request of the batch at hand has left."""
        if not (self._concurrent or self._continuous):
            self._gone.update(self._channel.cancelled())
        return id in self._gone

    def _run_in_turn(self) -> None:
        while (received := self._channel.receive()) is not None:
            message, body = received
            if isinstance(message, wire.Predict):
                self._predict(message.requests, body)
            elif isinstance(message, wire.Threads):
                _set_threads(message.count)

    def _run_continuously(self) -> None:
        """Between two steps, what has arrived is let in and who has gone is let go."""
        batch = ContinuousBatch(self._executor, self._handle, self._context)
        while True:
            received = self._channel.arrived() if batch else [self._channel.receive()]
            requests: list[wire.Request] = []
            bodies, gone = bytearray(), list[str]()
            for each in received:
                if each is None:
                    return
                message, body = each
                if isinstance(message, wire.Predict):
                    if message.requests[0].command == "describe":
                        self._predict(message.requests, body)
                    else:
                        requests += message.requests
                        bodies += body
                elif isinstance(message, wire.Cancel):
                    gone += message.ids
                elif isinstance(message, wire.Threads):
                    _set_threads(message.count)
            begin = time.perf_counter()
            answers = batch.step(requests, bodies) if batch or requests else []
            answers += batch.drop(gone)
            if answers:
                self._answer(answers, time.perf_counter() - begin)

    def _run_concurrently(self) -> None:
        concurrent = Concurrent(
            self._channel,
            self._handle,
            self._context,
            self._make_executor,
            self._answer,
            _set_threads,
        )
        self._runner.run(concurrent.run())

    def _predict(self, requests: list[wire.Request], body: bytearray) -> None:
        answers: list[Answer] = []
        # Small messages are read many at a time: what has come after this one is known, or nothing.
        if self._channel.more or self._gone or len(body) > _LARGE_BYTES:
            requests, body, answers = self._begun(requests, body)
        begin = time.perf_counter()
        if requests:
            self._requests = requests
            answers += self._executor.run(requests, body)
        self._answer(answers, time.perf_counter() - begin)

    def _begun(
        self, requests: list[wire.Request], body: bytearray
    ) -> tuple[list[wire.Request], bytearray, list[Answer]]:
        """Returns what of a batch is still wanted, its bytes, and the answers to the rest."""
        self._gone.update(self._channel.cancelled())
        gone = self._gone & {r.id for r in requests}
        self._gone &= self._channel.sent_ahead()  # answered ones are no more to be thought of
        if not gone:
            return requests, body, []
        wanted, pieces, at = [], bytearray(), 0
        for request in requests:
            size = sum(part.size for part in request.parts)
            if request.id not in gone:
                wanted.append(request)
                pieces += body[at : at + size]
            at += size
        skipped = [r for r in requests if r.id in gone]
        return wanted, pieces, [self._executor.failure(r, CallersGone()) for r in skipped]

    def _answer(self, answers: list[Answer], took_s: float) -> None:
        """Sends the answers of one batch, or of one step of it."""
        if self._rank:  # rank 0 answers, and reports
            self._metrics.drain()
            self._spans.clear()
            return
        self._channel.quick = took_s < _QUICK_S
        self._gauge(time.perf_counter(), took_s)
        buffers = self._metric_frames()
        replies = wire.Replies([reply for reply, _ in answers], took_s, self._spans)
        buffers += wire.encode(replies, [data for _, data in answers if len(data)])
        self._spans.clear()
        with self._sending:
            self._channel.send_buffers(buffers)

    def _emit(self, reply: wire.Reply, data: wire.Buffer) -> None:
        """Sends a piece of an answer, unless its caller is gone; with all gone, work ends here."""
        if self._rank:
            return
        if not (self._concurrent or self._continuous):  # where tasks are cancelled, or steps end
            self._gone.update(self._channel.cancelled())
            if all(request.id in self._gone for request in self._requests):
                raise CallersGone
            if reply.id in self._gone:
                return
        with self._sending:
            self._channel.send(wire.Replies([reply]), [data])

    def _gauge(self, now: float, took_s: float) -> None:
        if now - self._gauged_at > _GAUGE_INTERVAL_S:
            self._gauged_at = now
            self._metrics.add_time("PredictionTime", round(took_s * 1e3, 2), None, "ms")

    def report(self) -> None:
        """Sends what the handler reported while it was loaded."""
        if self._rank:
            self._metrics.drain()
        elif buffers := self._metric_frames():
            self._channel.send_buffers(buffers)

    def _metric_frames(self) -> list[wire.Buffer]:
        """What was reported goes out before the answer, so that a client finds it counted."""
        drained = self._metrics.drain()
        if not drained:
            return []
        try:
            return wire.encode(wire.Metrics([wire.Sample(*values) for values in drained]))
        except ValueError as error:  # a name in no encoding; the prediction is not to blame
            print(f"metrics are left out: {error}", file=sys.stderr, flush=True)
            return []


def serve(channel: Channel) -> int:
    """Runs a worker over a channel; returns the process's exit status."""
    received = channel.receive()
    if received is None:
        return 0
    load = received[0]
    if not isinstance(load, wire.Load) or load.protocol != wire.PROTOCOL_VERSION:
        raise wire.WireError(
            f"expected load of protocol {wire.PROTOCOL_VERSION}, got {load!r:.200}"
        )
    compat.activate()
    os.chdir(load.model_dir)
    _set_threads(load.threads)
    try:
        loop = Loop(channel, load)
    except BaseException as error:
        channel.send(_load_failed(error, load.model_dir))
        return 1
    gc.collect()
    gc.freeze()  # what loading made stays: the collector need not walk it again
    channel.send(wire.Loaded(os.getpid(), follows=loop.follow is not None))
    loop.report()
    if loop.follow is not None:
        loop.follow()
        return 0
    loop.run()
    loop.close()
    return 0


def _set_threads(count: int) -> None:
    """Tells torch, now if it is imported (in a template), else by the environment it will read."""
    if count:
        os.environ["OMP_NUM_THREADS"] = str(count)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(count)


def _follow(handle: Any) -> Callable[[], None] | None:
    """What the other ranks do, as the handler says, if rank 0 tells them everything."""
    found: Any = getattr(getattr(handle, "__self__", None), "rank_follower", None)
    return cast("Callable[[], None] | None", found()) if callable(found) else None


def _enveloped(handle: Any, envelope: str | None) -> Any:
    if not envelope:
        return handle
    from marserve.handlers.envelopes import load_envelope

    return load_envelope(envelope, handle)


def _load_failed(error: BaseException, model_dir: str) -> wire.LoadFailed:
    own = isinstance(error, MarserveError)
    text = plain(error)
    return wire.LoadFailed(
        type(error).__name__,
        without_paths(text, model_dir),
        text if own else plain("".join(traceback.format_exception(error))),
        out_of_memory(error),
    )
