"""When a model should have more workers, or fewer: decided from numbers alone, without a clock.

More: when requests wait although every worker is busy, and have done so for a while or will at the
pace seen so far. Fewer: when one worker has had nothing to do for long. None: when the whole model
has had nothing to do for longer than it was told to wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PATIENCE_S = 0.5
"""Requests that wait, or are about to wait, longer than this are reason for one more worker."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a model has to do and who does it, at one moment.

    Args:
        now: Seconds on any steady clock.
        size: Workers that are wanted.
        ready: Those of them that can serve; the others are starting, or fail to.
        busy: Those of them that have a batch.
        waiting: Requests in the queue.
        waited_s: How long the oldest of them has waited.
        batch_time_s: What a batch takes; 0 if that is not known.
        idle_s: How long the least used worker has had nothing to do; 0 if all are busy.
        quiet_s: How long there has been nothing to do at all.
    """

    now: float
    size: int
    ready: int
    busy: int = 0
    waiting: int = 0
    waited_s: float = 0.0
    batch_time_s: float = 0.0
    idle_s: float = 0.0
    quiet_s: float = 0.0


class ScalingPolicy:
    """Turns what is seen of a model into a number of workers more or fewer.

    Args:
        batch_size: Most requests that one worker takes at once.
        scale_down_idle_s: A worker that is idle for so long is given up.
        idle_timeout_s: All are, if the model is idle for so long; None for never.
    """

    def __init__(
        self, batch_size: int, scale_down_idle_s: float, idle_timeout_s: float | None = None
    ) -> None:
        self._batch_size = batch_size
        self._scale_down_idle_s = scale_down_idle_s
        self._idle_timeout_s = idle_timeout_s
        self._saturated_since: float | None = None

    def change(self, load: Load, least: int, most: int) -> int:
        """Returns how many workers to add, or as a negative number, to give up.

        Args:
            load: What is seen now; call this a few times a second.
            least: Workers to keep while there is something to do.
            most: Workers to have at most.
        """
        if not load.size:
            return 0  # asleep, or never to have any: the next request or a scale call decides
        if self._may_sleep(load):
            return -load.size
        if load.size < least:
            return least - load.size
        more = min(self._lacking(load), most - load.size)
        if more > 0:
            self._saturated_since = None
            return more
        return -1 if load.size > max(least, 1) and self._spare(load) else 0

    def _may_sleep(self, load: Load) -> bool:
        limit = self._idle_timeout_s
        return limit is not None and load.ready > 0 and load.quiet_s >= limit

    def _spare(self, load: Load) -> bool:
        """Whether one worker has long been of no use; one that cannot even start counts, too."""
        if load.waiting:
            return False
        limit = self._scale_down_idle_s
        return load.idle_s >= limit or (load.ready < load.size and load.quiet_s >= limit)

    def _lacking(self, load: Load) -> int:
        """How many workers would be of use now."""
        if not load.waiting or load.busy < load.ready or not load.ready:
            self._saturated_since = None
            return 0
        if self._saturated_since is None:
            self._saturated_since = load.now
        starting = load.size - load.ready
        batches = math.ceil(load.waiting / self._batch_size)
        work_s = batches * load.batch_time_s
        if work_s > PATIENCE_S * load.size:
            return min(math.ceil(work_s / PATIENCE_S) - load.size, batches - starting)
        waited_s = max(load.waited_s, load.now - self._saturated_since)
        return 1 if waited_s >= PATIENCE_S and not starting else 0
