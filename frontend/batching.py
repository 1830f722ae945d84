"""Where requests wait, and which of them go together: no I/O, no clock of its own.

A batch is cut when a worker can take one. A full batch goes at once. A partial batch waits only
while company is still arriving: at most ``max_delay_s`` after its oldest request came, and at most
a twentieth of that after its newest. So the delay is an upper bound that a lone request hardly
pays, while requests that come in one burst still share a batch.

After a batch, those who were just answered may ask again at once. So many, and those who waited,
are hoped for: until all of them are there, the batch waits up to a quarter of the delay after the
newest one, then for a fiftieth, all counted from when the worker was free. One who was answered
alone, twice, waits for nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from marserve.frontend.priorities import Levels
from marserve.frontend.types import InferenceRequest

_LULL = 0.05  # of max_delay_s: no arrival for that long, and the burst is over
_PATIENCE = 0.25  # of max_delay_s: likewise, while those just answered are hoped for
_AND_ONE_MORE = 0.02  # of max_delay_s: likewise, when they are there


class BatchQueue:
    """A bounded queue of requests for one model, first in first out, or by priority and then so.

    Args:
        batch_size: Largest number of rows in a batch, mostly one a request; a request that has
            more rows runs alone.
        max_delay_s: Longest time for which a request waits for company while a worker is free.
        capacity: Largest number of waiting requests.
        levels: Of priority; every request must have one of 1 to this. 0 for a plain queue.
    """

    def __init__(self, batch_size: int, max_delay_s: float, capacity: int, levels: int = 0) -> None:
        self.batch_size = batch_size
        self.max_delay_s = max_delay_s
        self.capacity = capacity
        self._levels = levels
        self._waiting: deque[InferenceRequest] | Levels = self._line(())
        self._more_rows = 0  # than requests that wait
        self._newest_at = 0.0
        self._freed_at = float("-inf")
        self._hoped = self._answered = 0
        self._lone = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def rows(self) -> int:
        """Rows of all requests that wait."""
        return len(self._waiting) + self._more_rows

    @property
    def newest_at(self) -> float:
        """When the last request came, on the caller's clock; 0 if none ever did."""
        return self._newest_at

    @property
    def oldest_at(self) -> float:
        """When the request came that waits for longest; infinite if none waits."""
        waiting = self._waiting
        if not waiting:
            return float("inf")
        return waiting.oldest_at() if isinstance(waiting, Levels) else waiting[0].queued_at

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
        self._more_rows += request.rows - 1
        return True

    def give_way(self, level: int) -> InferenceRequest | None:
        """Takes out the newest request of a lower priority, if there is one, to make room."""
        request = self._waiting.give_way(level) if isinstance(self._waiting, Levels) else None
        if request is not None:
            self._more_rows -= request.rows - 1
        return request

    def put_back(self, requests: list[InferenceRequest]) -> None:
        """Returns requests to the head of the queue in their order; capacity does not apply."""
        self._waiting.extendleft(reversed(requests))
        self._more_rows += sum(request.rows - 1 for request in requests)

    def full(self) -> bool:
        """Tells whether a whole batch is waiting, so that nothing is gained by waiting longer."""
        return self.rows >= self.batch_size

    def freed(self, now: float, answered: int) -> None:
        """Notes that a worker has nothing more to do.

        Args:
            now: On the caller's clock.
            answered: Rows of the batch that it has just answered.
        """
        self._lone = answered == self._answered == 1 and not self._waiting
        self._answered = answered
        self._freed_at = now
        self._hoped = min(self.batch_size, self.rows + answered)

    def cut(self, now: float, most: int | None = None) -> list[InferenceRequest]:
        """Returns the batch that should run now if a worker is free; empty if it is too early.

        Args:
            now: On the caller's clock.
            most: Takes no more rows than these; None for a whole batch.

        All requests of a batch have the same command. ``describe`` runs alone, and so does a
        request whose worker died: if it was the cause, it takes no other with it.
        """
        waiting = self._waiting
        while waiting and waiting[0].cancelled:
            self._take()
        if not waiting or (not self.full() and now < self.due()):
            return []
        first = self._take()
        batch = [first]
        left = (self.batch_size if most is None else min(most, self.batch_size)) - first.rows
        if left > 0 and _sociable(first):
            while waiting:
                following = waiting[0]
                if not following.cancelled:
                    alike = following.command == first.command and _sociable(following)
                    if following.rows > left or not alike:
                        break
                    batch.append(following)
                    left -= following.rows
                self._take()
        return batch

    def due(self) -> float:
        """Returns when a partial batch should go, on the caller's clock; infinite if none waits."""
        if not self._waiting:
            return float("inf")
        delay_s, newest_at = self.max_delay_s, self._newest_at
        if self.batch_size == 1 or delay_s <= 0:
            return 0.0
        if newest_at > self._freed_at + delay_s:  # nothing to do with the last batch
            return min(self.oldest_at + delay_s, newest_at + delay_s * _LULL)
        if self._lone:
            return newest_at
        begin, company = self._freed_at, _PATIENCE
        if self.rows >= self._hoped:
            company = _AND_ONE_MORE
        return min(max(self.oldest_at, begin) + delay_s, max(newest_at, begin) + delay_s * company)

    def expired(self, now: float) -> list[InferenceRequest]:
        """Removes and returns the requests whose deadline has passed."""
        late = [r for r in self._waiting if r.deadline <= now]
        if late:
            self._keep([r for r in self._waiting if r.deadline > now])
        return late

    def clear(self) -> list[InferenceRequest]:
        """Removes and returns everything."""
        everything = list(self._waiting)
        self._keep(())
        return everything

    def _drop_cancelled(self) -> None:
        self._keep([r for r in self._waiting if not r.cancelled])

    def _take(self) -> InferenceRequest:
        request = self._waiting.popleft()
        self._more_rows -= request.rows - 1
        return request

    def _keep(self, requests: Iterable[InferenceRequest]) -> None:
        self._waiting = self._line(requests)
        self._more_rows = sum(request.rows - 1 for request in self._waiting)

    def _line(self, requests: Iterable[InferenceRequest]) -> deque[InferenceRequest] | Levels:
        return Levels(self._levels, requests) if self._levels else deque(requests)


def _sociable(request: InferenceRequest) -> bool:
    return request.command != "describe" and not request.attempts
