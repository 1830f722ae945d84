"""One served version of a model: its queue, its workers, and the way of a request between them.

Everything here runs on the event loop, in callbacks: a request is queued, cut into a batch and
written to a worker's socket in one go when a worker is free, and answered from the read callback of
that socket. No task is made for a request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from marserve.archiver.unpack import Archive
from marserve.frontend.autoscaler import Autoscaler
from marserve.frontend.dispatch import make_queue
from marserve.frontend.errors import (
    DeadlineExceeded,
    InternalError,
    OutOfResources,
    ServeError,
    ServiceUnavailable,
)
from marserve.frontend.metrics import Telemetry
from marserve.frontend.mirror import Mirror
from marserve.frontend.pool import Slot, WorkerPool
from marserve.frontend.priorities import level_of
from marserve.frontend.process import exit_cause
from marserve.frontend.sequences import SequenceQueue
from marserve.frontend.settings import ModelSettings
from marserve.frontend.statistics import Statistics
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.frontend.workers import Worker
from marserve.worker import wire

_log = logging.getLogger(__name__)

_SWEEP_S = 0.05  # how late a passed deadline may be noticed
_MAX_ATTEMPTS = 2  # a request that was in the hands of two workers that died is not tried again

StartWorker = Callable[["Model", Slot], Awaitable[Worker]]


class Model:
    """One version of a model, from its archive to its workers.

    Args:
        name: Name it is registered under.
        version: Version of its archive.
        url: As registered.
        archive: Unpacked.
        settings: Values in force.
        start_worker: Coroutine function that spawns and loads a worker for a slot.
        telemetry: Receives counts and times.
        end_launcher: Called when no more workers will be started.
        strict: Whether failures carry TorchServe's statuses.
        loaded_at_startup: Whether it was named at the start of the server.
    """

    def __init__(
        self,
        name: str,
        version: str,
        url: str,
        archive: Archive,
        settings: ModelSettings,
        start_worker: StartWorker,
        telemetry: Telemetry,
        end_launcher: Callable[[], Awaitable[None]],
        strict: bool = False,
        loaded_at_startup: bool = False,
    ) -> None:
        self.name = name
        self.version = version
        self.url = url
        self.archive = archive
        self.settings = settings
        self.loaded_at_startup = loaded_at_startup
        self.workflow: str | None = None
        self.min_workers, self.max_workers = settings.min_workers, settings.max_workers
        self.draining = False
        self.queue, self._dispatcher = make_queue(settings, lambda: self.pool.workers)
        self.pool = WorkerPool(
            f"{name} {version}",
            lambda slot: start_worker(self, slot),
            self._ready,
            self._lost,
            self._changed,
            settings.retry_window_s,
        )
        self.scaler = Autoscaler(self)
        self.mirror: Mirror | None = None
        self.successor: Callable[[], Model | None] = lambda: None
        self._telemetry = telemetry
        self._end_launcher = end_launcher
        self._by_default = telemetry.inference(name, None)
        self._by_version = telemetry.inference(name, version)
        stages = telemetry.stages(name, version)
        self.batch_sent, self.stages_done = stages.sent, stages.handled
        self.statistics = Statistics(stages.batch)
        self.batch_done = self.statistics.batch
        self._strict = strict
        self._drained = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None

    # -- requests --------------------------------------------------------------------------------

    def submit(self, request: InferenceRequest) -> None:
        """Accepts a request; its answer goes to its sink.

        Raises:
            ServiceUnavailable: If no worker can serve it, or the queue is full.
            BadRequest: If its priority is none.
        """
        if self.draining or not (self.pool.hope or self.scaler.wake()):
            raise self._no_worker(request)
        if self.settings.use_job_ticket and not self._dispatcher.free:
            raise ServiceUnavailable(
                f'Model "{self.name}" has no free worker (useJobTicket). Try again later.',
                retry_after_s=1,
            )
        now = time.monotonic()
        limit = (
            request.timeout_s if request.timeout_s is not None else self.settings.client_timeout_s
        )
        if limit is not None:
            request.deadline = now + limit
        if levels := self.settings.priority_levels:
            default = self.settings.default_priority_level
            request.priority = level_of(request, levels, default)
        if not self.queue.put(request, now):
            self._make_room(request)
            self.queue.put(request, now)
        if self._sweeper is None:
            self._sweep_later()
        self._dispatcher.run(now)
        if self.mirror is not None and not request.pinned:
            self.mirror.copy(request)

    def _make_room(self, request: InferenceRequest) -> None:
        """Refuses a waiting request of a lower priority, or else this one."""
        full = ServiceUnavailable(
            f'Model "{self.name}" has no place in its queue: {len(self.queue)} requests wait'
            f" (jobQueueSize {self.settings.job_queue_size}). Try again later.",
            retry_after_s=1,
        )
        gone = self.queue.give_way(request.priority)
        if gone is None:
            raise full
        gone.send(full.chunk())

    # -- what workers say ------------------------------------------------------------------------

    def worker_free(self, worker: Worker) -> None:
        """A batch is done; the worker takes the next one if there is one."""
        if not worker.stopping:
            if not worker.busy:
                self.queue.freed(worker.idle_since, worker.answered)
            self._dispatcher.offer(worker)
            if self.queue:
                self._dispatcher.run(time.monotonic())
        if self.draining:
            self._check_drained()

    def request_done(self, request: InferenceRequest, reply: wire.Reply) -> None:
        """Counts a finished request."""
        metrics = self._by_version if request.pinned else self._by_default
        waited = request.sent_at - request.queued_at
        now = time.monotonic()
        metrics.observe(now - request.queued_at, waited)
        self.statistics.request(request, reply.failure is not None, now)
        if isinstance(self.queue, SequenceQueue):
            self.queue.done(request, reply.headers, now)

    def failure_chunk(self, reply: wire.Reply) -> Chunk:
        """Returns the answer to a request whose handler failed."""
        failure = reply.failure
        assert failure is not None  # noqa: S101  (the caller has looked)
        status = reply.status
        if self._strict and failure.type in ("handler", "result", "output"):
            status = 503
        told = wire.Failure(InternalError.type, failure.message, failure.traceback)
        return Chunk(status=status, failure=told)

    def loaded(self, worker: Worker, began_at: float) -> None:
        """Notes how long a worker took to load; ``began_at`` is wall-clock time."""
        self._telemetry.worker_loaded(worker.name, (time.time() - began_at) * 1e3)

    @property
    def metrics_config(self) -> dict[str, Any]:
        """The metrics that its handler may report without further ado."""
        return self._telemetry.model_metrics_config

    def record(self, samples: list[wire.Sample]) -> None:
        """Takes over metrics that the handler reported."""
        self._telemetry.record(samples, self.name)

    def _ready(self, worker: Worker) -> None:
        if not worker.stopping:  # it may have been given up while it loaded
            self._dispatcher.offer(worker)
            self._dispatcher.run(time.monotonic())

    def _lost(self, worker: Worker, code: int) -> None:
        """Saves the requests of a worker that is gone."""
        self._telemetry.worker_gone(worker.name)
        self._dispatcher.withdraw(worker)
        running, ahead = worker.in_flight.take_all()
        retry, again = self.settings.retry_in_flight, []
        if isinstance(self.queue, SequenceQueue):  # whose state is gone with the worker
            retry, running = False, running + self.queue.lose(worker)
        for request in running:
            request.attempts += 1
            tried = request.attempts >= _MAX_ATTEMPTS or not retry
            if tried or request.streamed:
                request.send(self._death(code).chunk())
            elif not request.answered:
                again.append(request)
        self.queue.put_back(again + [r for r in ahead if not r.answered])
        if self.queue and self._sweeper is None:
            self._sweep_later()
        self._dispatcher.run(time.monotonic())

    def _changed(self) -> None:
        """With no worker left that can be hoped for, those who wait are told why."""
        if not self.pool.hope and len(self.queue):
            self._refuse_waiting()

    # -- time ------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Answers what has run out of time; runs only while there is something to watch."""
        now, limit = time.monotonic(), self.settings.response_timeout_s
        for request in self.queue.expired(now):
            request.send(self._too_late("in the queue").chunk())
        busy = False
        for worker in self.pool.all_workers:
            busy = busy or bool(worker.busy)
            for request in worker.in_flight.expired(now):
                request.send(self._too_late("while it ran").chunk())
                request.cancel()  # what still comes of it is for nobody
            for request in worker.in_flight.overdue(now, limit):
                request.send(self._no_response().chunk())
            if worker.in_flight.hung(now, limit):
                _log.error("worker %s is hung (twice its response timeout): killed", worker.name)
                worker.kill("was hung for twice its response timeout, and was killed")
        if busy or self.queue:
            self._sweep_later()
        else:
            self._sweeper = None
            self._check_drained()

    # -- errors ----------------------------------------------------------------------------------

    def _no_worker(self, request: InferenceRequest) -> ServeError:
        which = f'Model "{self.name}"'
        if request.pinned:
            which += f' Version "{self.version}"'
        kind = "describe" if request.command == "describe" else "inference"
        text = (
            f"{which} has no worker to serve {kind} request."
            " Please use scale workers API to add workers."
        )
        if self.draining:
            text = f"{which} is being stopped."
        elif self.pool.size and self.pool.last_error is not None:
            text += f" The last worker failed to load: {self.pool.last_error}"
        return ServiceUnavailable(text, retry_after_s=1)

    def _death(self, code: int) -> ServeError:
        kind = OutOfResources if code in (-9, 137) else InternalError
        return kind(f"Worker died. The worker that ran this request {exit_cause(code)}.")

    def _too_late(self, where: str) -> ServeError:
        return DeadlineExceeded(f'Model "{self.name}": the time limit passed {where}.')

    def _no_response(self) -> ServeError:
        limit = self.settings.response_timeout_s
        text = f"no response within responseTimeout ({limit:g} s)."
        if self._strict:
            return InternalError(f"Worker died. There was {text}")
        return DeadlineExceeded(f'Model "{self.name}": {text}')

    # -- life ------------------------------------------------------------------------------------

    async def scale(self, min_workers: int, max_workers: int) -> None:
        """Starts workers up to the minimum, or gives up those above the maximum."""
        self.min_workers, self.max_workers = min_workers, max_workers
        size = self.pool.size
        self.resize(max(0, min_workers - size) - max(0, size - max_workers))
        self.scaler.scaled()

    def resize(self, change: int, slot: Slot | None = None) -> None:
        """Starts so many workers, or gives up so many, ``slot`` first, if it is negative."""
        if change > 0:
            self.pool.grow(change)
        else:
            self.pool.shrink(-change, slot)
        self._dispatcher.keep(self.pool.workers)
        self._changed()  # now: the last batch of a worker that is given up may take long

    async def drain(self) -> None:
        """Accepts nothing more; returns when everything accepted is answered."""
        self.draining = True
        self._check_drained()
        await self._drained.wait()

    def _check_drained(self) -> None:
        if self.draining and not self.queue and not any(w.busy for w in self.pool.all_workers):
            self._drained.set()

    def _refuse_waiting(self) -> None:
        for request in self.queue.clear():
            if not self._hand_on(request):
                request.send(self._no_worker(request).chunk())

    def _hand_on(self, request: InferenceRequest) -> bool:
        """Gives a request that named no version to the one that now answers by default."""
        other = None if request.pinned else self.successor()
        if other is None or other is self:
            return False
        deadline = request.deadline
        try:
            other.submit(request)
        except ServeError:
            return False
        request.deadline = min(deadline, request.deadline)  # the time that it waited here counts
        return True

    async def close(self, at_once: bool = False) -> None:
        """Ends all workers; whoever still waits is told.

        Args:
            at_once: Do not wait for requests that are running.
        """
        self.draining = True
        if at_once:
            self.pool.kill()
        self.scaler.close()
        self._refuse_waiting()
        await self.pool.close()
        await self._end_launcher()
        self._refuse_waiting()  # those that a killed worker had, and that were to run again
        self._dispatcher.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
