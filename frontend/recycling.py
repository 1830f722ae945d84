"""Workers that have done enough, or grown too large, are replaced: the new one is ready first."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil

from marserve.frontend.pool import Slot, SlotState

if TYPE_CHECKING:
    from marserve.frontend.model import Model
    from marserve.frontend.workers import Worker

_log = logging.getLogger(__name__)

_MEMORY_LOOK_S = 1.0
_RETRY_S = 60.0  # after a replacement that could not load


def resident_bytes(worker: Worker) -> int:
    """Returns a worker's resident set, of all its processes, shared pages included; 0 if gone."""
    try:
        return sum(psutil.Process(pid).memory_info().rss for pid in worker.pids)
    except psutil.Error:
        return 0


class Recycler:
    """Replaces the workers of one model, one at a time.

    Args:
        model: Whose workers; its settings have the limits.
        resident: Tells the memory that a worker has, in bytes.
    """

    def __init__(self, model: Model, resident: Callable[[Worker], int] = resident_bytes) -> None:
        self._model = model
        self._resident = resident
        self._most_requests = model.settings.max_requests_per_worker
        self._most_bytes = (model.settings.max_worker_memory_mb or 0) << 20
        self._pair: tuple[Slot, Slot] | None = None
        self._not_before = self._measure_at = 0.0

    @property
    def wanted(self) -> bool:
        """Whether there is a limit to watch."""
        return bool(self._most_requests or self._most_bytes)

    def step(self, now: float) -> bool:
        """Begins a replacement, or goes on with the one begun.

        Args:
            now: Seconds on a steady clock.

        Returns:
            Whether one is going on: there is a worker too many as long as it does.
        """
        if self._pair is not None:
            self._follow(*self._pair, now)
        elif now >= self._not_before and (worn := self._worn(now)) is not None:
            self._pair = worn, self._model.pool.grow(1)[0]
        return self._pair is not None

    def _follow(self, old: Slot, new: Slot, now: float) -> None:
        if not (old.wanted and new.wanted):
            self._pair = None  # somebody scaled meanwhile, and took one of them
        elif new.state is SlotState.READY:
            self._pair = None
            self._model.resize(-1, old)
            self._check(new)
        elif new.state is not SlotState.STARTING:
            self._pair = None
            self._not_before = now + _RETRY_S
            self._model.resize(-1, new)
            _log.error("%s: no replacement for a worn worker: it stays", self._model.name)

    def _worn(self, now: float) -> Slot | None:
        slots = [s for s in self._model.pool.slots if s.state is SlotState.READY]
        measure = self._most_bytes and now >= self._measure_at
        if measure:
            self._measure_at = now + _MEMORY_LOOK_S
        for slot in slots:
            worker = slot.worker
            if worker is None:
                continue
            if self._most_requests and worker.served >= self._most_requests:
                _log.info("worker %s is replaced after %d requests", worker.name, worker.served)
                return slot
            if measure and (size := self._resident(worker)) > self._most_bytes:
                _log.info("worker %s is replaced at %d MB", worker.name, size >> 20)
                return slot
        return None

    def _check(self, new: Slot) -> None:
        """A limit that a fresh worker exceeds would have workers replaced for ever."""
        size = self._resident(new.worker) if new.worker is not None and self._most_bytes else 0
        if size > self._most_bytes:
            text = "%s: maxWorkerMemoryMB %d is less than the %d MB of a fresh worker: not watched"
            _log.error(text, self._model.name, self._most_bytes >> 20, size >> 20)
            self._most_bytes = 0
