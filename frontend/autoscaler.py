"""Watches one model and gives it as many workers as it needs, none if it may sleep."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from marserve.frontend.recycling import Recycler
from marserve.frontend.scaling import Load, ScalingPolicy
from marserve.frontend.worker_environment import compute_threads

if TYPE_CHECKING:
    from marserve.frontend.model import Model

_log = logging.getLogger(__name__)

_LOOK_S = 0.1  # while there is something to do
_GLANCE_S = 0.5  # while there is nothing


class Autoscaler:
    """Looks at a model a few times a second, if there is anything to decide.

    Args:
        model: Whose workers it adds and gives up.
    """

    def __init__(self, model: Model) -> None:
        settings = model.settings
        self._model = model
        self._policy = ScalingPolicy(
            settings.batch_size, settings.scale_down_idle_s, settings.idle_timeout_s
        )
        self._recycler = Recycler(model)
        self._may_sleep = settings.idle_timeout_s is not None
        self._asleep = False
        self._active_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def dormant(self) -> bool:
        """Whether the model has no workers because nothing was to be done, and can get them.

        It stays so while the first one starts again, unless that fails.
        """
        pool = self._model.pool
        return self._asleep and not pool.ready and (not pool.size or pool.hopeful > 0)

    @property
    def servable(self) -> bool:
        """Whether a request would be answered, if workers are wanted; a sleeping model gets one.

        Stopped and hung workers do not count.
        """
        up = any(worker.responsive for worker in self._model.pool.workers)
        return up or not self._model.min_workers or self.dormant

    def wake(self) -> bool:
        """Lets a model that sleeps have workers again; returns whether it will."""
        model = self._model
        if model.draining or not self.dormant:
            return False
        if not model.pool.size:
            count = max(1, model.min_workers)
            _log.info("%s %s: woken: starting %d worker(s)", model.name, model.version, count)
            model.resize(count)
            self._look_later(_LOOK_S)
        return True

    def scaled(self) -> None:
        """The model was given another least and greatest number of workers."""
        model = self._model
        self._active_at = time.monotonic()
        self._asleep = self._may_sleep and not model.min_workers and model.max_workers > 0
        self._share_cores()
        if self._may_sleep or self._recycler.wanted or model.max_workers > model.min_workers:
            self._look_later(_GLANCE_S)

    def close(self) -> None:
        """Looks no more."""
        self._asleep = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self, now: float) -> int:
        """Adds or gives up workers if there is reason to.

        Args:
            now: On the clock of ``time.monotonic``.

        Returns:
            How many workers were added, or as a negative number, given up.
        """
        model = self._model
        if self._recycler.wanted and self._recycler.step(now):
            return 0
        load = self._load(now)
        change = self._policy.change(load, model.min_workers, model.max_workers)
        if change:
            words = "asleep: " if change == -load.size else ""
            was, size = load.size, load.size + change
            _log.info("%s %s: %s%d -> %d workers", model.name, model.version, words, was, size)
            self._asleep = not size
            model.resize(change)
            self._share_cores()
        return change

    def _share_cores(self) -> None:
        """Gives each worker its part of the cores; one that still loads gets it, too."""
        pool = self._model.pool
        for worker in pool.workers:
            worker.share(compute_threads(pool.size * (1 + len(worker.ranks))))

    def _load(self, now: float) -> Load:
        pool, queue = self._model.pool, self._model.queue
        workers = [w for w in pool.workers if w.ready]
        busy = sum(bool(w.busy) for w in workers)
        if busy or queue or pool.hopeful > pool.ready:
            self._active_at = now
        idle = [w.idle_since for w in workers if not w.busy]
        times = [w.batch_time_s for w in workers if math.isfinite(w.batch_time_s)]
        return Load(
            now=now,
            size=pool.size,
            ready=pool.ready,
            busy=busy,
            waiting=len(queue),
            waited_s=now - queue.oldest_at if queue else 0.0,
            batch_time_s=sum(times) / len(times) if times else 0.0,
            idle_s=now - min(idle) if idle else 0.0,
            quiet_s=now - max(self._active_at, queue.newest_at),
        )

    def _look_later(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._looked)

    def _looked(self) -> None:
        self._timer = None
        model = self._model
        if model.draining:
            return
        self.look(time.monotonic())
        if model.pool.size:
            active = bool(model.queue) or any(w.busy for w in model.pool.workers)
            self._look_later(_LOOK_S if active else _GLANCE_S)
