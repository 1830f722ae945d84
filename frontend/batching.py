"""Where requests wait, and which of them go together: no I/O, no clock of its own.

A batch is cut when a worker can take one. A full batch goes at once. A partial batch waits only
while company is still arriving: at most ``max_delay_s`` after its oldest request came, and at most
a twentieth of that after its newest. So the delay is an upper bound that a lone request hardly
pays, while requests that come in one burst still share a batch.
"""

from __future__ import annotations

from collections import deque

from marserve.frontend.types import InferenceRequest

_LULL = 0.05  # of max_delay_s: no arrival for that long, and the burst is over


class BatchQueue:
    """A bounded first-in first-out queue of requests for one model.

    Args:
        batch_size: Largest number of requests in a batch.
        max_delay_s: Longest time for which a request waits for company while a worker is free.
        capacity: Largest number of waiting requests.
    """

    def __init__(self, batch_size: int, max_delay_s: float, capacity: int) -> None:
        self.batch_size = batch_size
        self.max_delay_s = max_delay_s
        self.capacity = capacity
        self._waiting: deque[InferenceRequest] = deque()
        self._newest_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def newest_at(self) -> float:
        """When the last request came, on the caller's clock; 0 if none ever did."""
        return self._newest_at

    @property
    def oldest_at(self) -> float:
        """When the request at the head of the queue came; infinite if none waits."""
        return self._waiting[0].queued_at if self._waiting else float("inf")

    @property
    def remaining(self) -> int:
        """How many more requests may wait."""
        return max(0, self.capacity - len(self._waiting))

    def put(self, request: InferenceRequest, now: float) -> bool:
        """Appends a request, or returns False if the queue is full even without abandoned ones."""
        if len(self._waiting) >= self.capacity:
            self._drop_cancelled()
            if len(self._waiting) >= self.capacity:
                return False
        request.queued_at = self._newest_at = now
        self._waiting.append(request)
        return True

    def put_back(self, requests: list[InferenceRequest]) -> None:
        """Returns requests to the head of the queue in their order; capacity does not apply."""
        self._waiting.extendleft(reversed(requests))

    def full(self) -> bool:
        """Tells whether a whole batch is waiting, so that nothing is gained by waiting longer."""
        return len(self._waiting) >= self.batch_size

    def cut(self, now: float) -> list[InferenceRequest]:
        """Returns the batch that should run now if a worker is free; empty if it is too early.

        All requests of a batch have the same command. ``describe`` runs alone, and so does a
        request whose worker died: if it was the cause, it takes no other with it.
        """
        waiting = self._waiting
        while waiting and waiting[0].cancelled:
            waiting.popleft()
        if not waiting or (len(waiting) < self.batch_size and now < self.due()):
            return []
        first = waiting.popleft()
        batch = [first]
        if self.batch_size > 1 and _sociable(first):
            while waiting and len(batch) < self.batch_size:
                if not waiting[0].cancelled:
                    if waiting[0].command != first.command or not _sociable(waiting[0]):
                        break
                    batch.append(waiting[0])
                waiting.popleft()
        return batch

    def due(self) -> float:
        """Returns when a partial batch should go, on the caller's clock; infinite if none waits."""
        if not self._waiting:
            return float("inf")
        if self.batch_size == 1 or self.max_delay_s <= 0:
            return 0.0
        return min(
            self._waiting[0].queued_at + self.max_delay_s,
            self._newest_at + self.max_delay_s * _LULL,
        )

    def expired(self, now: float) -> list[InferenceRequest]:
        """Removes and returns the requests whose deadline has passed."""
        late = [r for r in self._waiting if r.deadline <= now]
        if late:
            self._waiting = deque(r for r in self._waiting if r.deadline > now)
        return late

    def clear(self) -> list[InferenceRequest]:
        """Removes and returns everything."""
        everything = list(self._waiting)
        self._waiting.clear()
        return everything

    def _drop_cancelled(self) -> None:
        self._waiting = deque(r for r in self._waiting if not r.cancelled)


def _sociable(request: InferenceRequest) -> bool:
    return request.command != "describe" and not request.attempts
