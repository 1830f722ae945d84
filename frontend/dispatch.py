"""Batches to workers that have room: called whenever there is a new request or a worker is free."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from marserve.frontend.batching import BatchQueue
from marserve.frontend.queue_policies import PolicyQueue
from marserve.frontend.sequences import SequenceQueue
from marserve.frontend.settings import ModelSettings
from marserve.frontend.workers import Worker

_FAST_BATCH_S = 0.002  # below this the way to the worker costs as much as the work: send ahead


class Dispatcher:
    """Hands the requests of one queue to the workers of one model.

    Args:
        queue: Where they wait.
        workers: Returns all wanted workers.
    """

    def __init__(
        self, queue: BatchQueue | SequenceQueue, workers: Callable[[], list[Worker]]
    ) -> None:
        self.free: list[Worker] = []
        self._queue = queue
        self._workers = workers
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0

    def run(self, now: float) -> None:
        """Gives batches to free workers, as far as there are both."""
        queue, free = self._queue, self.free
        while free:
            if free[-1].stopping:
                free.pop()  # it has just died
                continue
            batch = queue.cut(now, free[-1].room)
            if not batch:
                break
            worker = free.pop()  # first: it may have answered when send returns
            worker.send(batch, now)
            if worker.concurrency:
                self.offer(worker)
        if not queue:
            return
        if free:
            self._wake_at(queue.due(), now)
        elif queue.full():
            self._send_ahead(now)

    def offer(self, worker: Worker) -> None:
        """Notes that a worker may have room; those that run many at a time take turns."""
        if worker.room and worker not in self.free:
            self.free.insert(0 if worker.concurrency else len(self.free), worker)

    def withdraw(self, worker: Worker) -> None:
        """Forgets a worker."""
        if worker in self.free:
            self.free.remove(worker)

    def keep(self, workers: list[Worker]) -> None:
        """Forgets all workers but these."""
        self.free = [worker for worker in self.free if worker in workers]

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_ahead(self, now: float) -> None:
        """A worker with a fast handler gets its next batch while it has one, so it never waits."""
        for worker in self._workers():
            if worker.concurrency or worker.stopping:
                continue  # the former is sent what it has room for, and no more
            if worker.busy == 1 and worker.batch_time_s < _FAST_BATCH_S:
                batch = self._queue.cut(now)
                if not batch:
                    return
                worker.send(batch, now)

    def _wake_at(self, when: float, now: float) -> None:
        if self._timer is not None and self._wakes_at <= when:
            return  # too early at worst: then it is set anew, once for many requests
        self.close()
        self._wakes_at = when
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, when - now), self._woken)

    def _woken(self) -> None:
        self._timer = None
        self.run(time.monotonic())


class SequenceDispatcher(Dispatcher):
    """Hands the requests of sequences to the workers that hold their state.

    Args:
        queue: Where they wait.
        workers: Returns all wanted workers.
    """

    def __init__(self, queue: SequenceQueue, workers: Callable[[], list[Worker]]) -> None:
        super().__init__(queue, workers)
        self._sequences = queue

    def run(self, now: float) -> None:
        """Gives each free worker what its sequences have waiting."""
        for worker in list(self.free):
            if worker.stopping:
                self.withdraw(worker)
                continue
            batch = self._sequences.cut(now, worker.room, worker=worker)
            if batch:
                self.withdraw(worker)
                worker.send(batch, now)
                if worker.concurrency:
                    self.offer(worker)


def make_queue(
    settings: ModelSettings, workers: Callable[[], list[Worker]]
) -> tuple[BatchQueue | SequenceQueue, Dispatcher]:
    """Returns the queue of a model and what empties it, as its settings say.

    Args:
        settings: In force.
        workers: Returns all wanted workers.
    """
    if settings.sequences is not None:
        sequences = SequenceQueue(
            settings.sequences,
            settings.concurrency or settings.batch_size,
            settings.job_queue_size,
            lambda: sum(worker.ready and not worker.stopping for worker in workers()),
        )
        return sequences, SequenceDispatcher(sequences, workers)
    if settings.dynamic_batching is not None and not settings.concurrency:
        policies = PolicyQueue(
            settings.batch_size,
            settings.job_queue_size,
            settings.priority_levels,
            settings.dynamic_batching,
        )
        return policies, Dispatcher(policies, workers)
    delay_s = 0.0 if settings.concurrency else settings.max_batch_delay_ms / 1e3
    queue = BatchQueue(
        settings.batch_size, delay_s, settings.job_queue_size, settings.priority_levels
    )
    return queue, Dispatcher(queue, workers)
