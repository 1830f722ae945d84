"""What a worker was sent and has not answered: requests by id, and the batches they went in."""

from __future__ import annotations

from collections import deque
from itertools import chain

from marserve.frontend.types import InferenceRequest


class Batch:
    """Requests that were sent together.

    Args:
        requests: All of them.
        now: When they were sent, on the caller's clock.
    """

    __slots__ = ("began_at", "heard_at", "left", "overdue", "requests")

    def __init__(self, requests: list[InferenceRequest], now: float) -> None:
        self.requests = requests
        self.left = len(requests)
        self.began_at = self.heard_at = now  # or when the one before it was done
        self.overdue = False


class InFlight:
    """The batches of one worker, which runs and answers them in their order.

    Args:
        concurrency: How many requests it runs at the same time, each a batch of its own that is
            answered when it is done; 0 for one batch at a time.
        timed: Whether the response timeout holds.
    """

    def __init__(self, concurrency: int = 0, timed: bool = True) -> None:
        self.concurrency = concurrency
        self.requests: dict[str, InferenceRequest] = {}
        self.batches: deque[Batch] = deque()
        self._timed = timed

    def add(self, requests: list[InferenceRequest], now: float) -> None:
        """Notes a batch that is being sent."""
        for request in requests:
            self.requests[request.id] = request
        if self.concurrency:
            self.batches.extend(Batch([request], now) for request in requests)
        else:
            self.batches.append(Batch(requests, now))

    def heard(self, request: InferenceRequest, now: float) -> None:
        """Notes a piece of an answer: the response timeout begins anew."""
        batch = self._batch_of(request)
        batch.heard_at = now
        batch.overdue = False

    def done(self, request: InferenceRequest) -> Batch | None:
        """Notes the last of an answer; returns the batch if it is complete with that."""
        batch = self._batch_of(request) if self.concurrency else self.batches[0]
        batch.left -= 1
        if batch.left:
            return None
        self.batches.remove(batch)
        return batch

    def begin_next(self, now: float) -> None:
        """Notes that the batch that was sent ahead can begin, if there is one."""
        if self.batches and not self.concurrency:
            self.batches[0].began_at = self.batches[0].heard_at = now

    @property
    def late(self) -> bool:
        """Whether the response timeout of the running batch has passed."""
        return bool(self.batches) and self.batches[0].overdue

    def overdue(self, now: float, timeout_s: float) -> list[InferenceRequest]:
        """Returns the requests of batches that have just run out of their response time, once."""
        late = []
        for batch in self._running():
            if not batch.overdue and now - batch.heard_at >= timeout_s:
                batch.overdue = True
                late += [r for r in batch.requests if r.id in self.requests]
        return late

    def hung(self, now: float, timeout_s: float) -> bool:
        """Tells whether a running batch has taken more than twice its response time."""
        return any(now - batch.heard_at >= 2 * timeout_s for batch in self._running())

    def expired(self, now: float) -> list[InferenceRequest]:
        """Returns the requests whose own deadline has passed."""
        return [r for r in self.requests.values() if r.deadline <= now and not r.answered]

    def take_all(self) -> tuple[list[InferenceRequest], list[InferenceRequest]]:
        """Empties it; returns the requests that were running, and those sent ahead."""
        alive = [[r for r in batch.requests if r.id in self.requests] for batch in self.batches]
        running = len(alive) if self.concurrency else 1
        self.requests.clear()
        self.batches.clear()
        return list(chain(*alive[:running])), list(chain(*alive[running:]))

    def _running(self) -> list[Batch]:
        if not self._timed:
            return []
        return list(self.batches) if self.concurrency else list(self.batches)[:1]

    def _batch_of(self, request: InferenceRequest) -> Batch:
        if self.concurrency:
            return next(batch for batch in self.batches if batch.requests[0] is request)
        return self.batches[0]
