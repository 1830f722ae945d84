"""A queue that makes batches as Triton's dynamic batcher does, with time limits and levels."""

from __future__ import annotations

from collections.abc import Mapping

from marserve.archiver.model_config import DynamicBatching, QueuePolicy
from marserve.frontend.batching import BatchQueue
from marserve.frontend.priorities import Levels
from marserve.frontend.types import InferenceRequest


class PolicyQueue(BatchQueue):
    """Takes the largest preferred batch that is there, else the largest one once time is up.

    Args:
        batch_size: Largest number of rows in a batch.
        capacity: Largest number of waiting requests.
        levels: Of priority; 0 for none.
        batching: Preferred sizes, delay, and the policies of the levels.
    """

    def __init__(
        self, batch_size: int, capacity: int, levels: int, batching: DynamicBatching
    ) -> None:
        self._delayed = max(1, levels) + 1  # the level after all others: whoever was too late
        delay_s = batching.max_queue_delay_microseconds / 1e6
        super().__init__(batch_size, delay_s, capacity, self._delayed)
        self._preferred = sorted(batching.preferred_batch_size, reverse=True)
        self._default = batching.default_queue_policy
        self._policies: Mapping[int, QueuePolicy] = {
            int(level): policy for level, policy in batching.priority_queue_policy.items()
        }
        policies = [self._default, *self._policies.values()]
        self._limited = any(policy.default_timeout_microseconds for policy in policies)
        self._rejected: list[InferenceRequest] = []

    def put(self, request: InferenceRequest, now: float) -> bool:
        """Appends a request, or returns False if the queue, or its level, is full."""
        request.priority = min(request.priority or 1, self._delayed - 1)
        return not self._crowded(request.priority) and super().put(request, now)

    def give_way(self, level: int) -> InferenceRequest | None:
        """Takes out the newest request of a lower priority, if that makes room."""
        return None if self._crowded(level or 1) else super().give_way(level or 1)

    def full(self) -> bool:
        """Tells whether a batch is waiting that would not wait for more."""
        rows = self.rows
        return rows >= self.batch_size or any(rows >= size for size in self._preferred)

    def due(self) -> float:
        """Returns when a partial batch should go, on the caller's clock; infinite if none waits."""
        return self.oldest_at + self.max_delay_s

    def cut(self, now: float, most: int | None = None) -> list[InferenceRequest]:
        """Returns the batch that should run now if a worker is free; empty if it is too early."""
        if self._limited:
            self._sort_out(now)
        rows = self.rows
        size = next((size for size in self._preferred if size <= rows), None)
        if size is not None:
            most = size if most is None else min(size, most)
        return super().cut(now, most)

    def expired(self, now: float) -> list[InferenceRequest]:
        """Removes and returns the requests whose time is over."""
        if self._limited:
            self._sort_out(now)
        rejected, self._rejected = self._rejected, []
        return rejected + super().expired(now)

    def clear(self) -> list[InferenceRequest]:
        """Removes and returns everything."""
        rejected, self._rejected = self._rejected, []
        return rejected + super().clear()

    def _policy(self, level: int) -> QueuePolicy:
        return self._policies.get(level, self._default)

    def _crowded(self, level: int) -> bool:
        most = self._policy(level).max_queue_size
        waiting = self._waiting
        if not most or not isinstance(waiting, Levels):
            return False
        return waiting.waiting_at(level) >= most

    def _sort_out(self, now: float) -> None:
        """Puts aside what has waited too long; what may still run goes behind all others."""
        late = [r for r in self._waiting if self._is_late(r, now)]
        if not late:
            return
        ids = {id(request) for request in late}
        self._keep([r for r in self._waiting if id(r) not in ids])
        delayed = []
        for request in late:
            if self._policy(request.priority).timeout_action == "reject":
                self._rejected.append(request)
            else:
                request.priority = self._delayed
                delayed.append(request)
        self._keep([*self._waiting, *delayed])

    def _is_late(self, request: InferenceRequest, now: float) -> bool:
        if request.priority == self._delayed:
            return False
        limit_us = self._policy(request.priority).default_timeout_microseconds
        return bool(limit_us) and now - request.queued_at > limit_us / 1e6
