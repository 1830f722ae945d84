"""Stateful sequences: where their requests wait, in order, for the worker that holds their state.

A sequence begins with a request that says so, or with one that names none. One of its requests runs
at a time, always on the same worker; a batch has at most one request of each. It ends with a
request or an answer that says so, or when it is idle, or old, for too long.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from marserve.frontend.errors import ServiceUnavailable
from marserve.frontend.types import InferenceRequest
from marserve.frontend.workers import Worker


@dataclass(frozen=True, slots=True)
class SequenceSettings:
    """How sequences are served.

    Args:
        most: Open at the same time, on all workers.
        queue_size: Most requests of one sequence that wait.
        idle_s: One without requests for so long is over.
        total_s: So is one that began so long ago; infinite for no limit.
        id: Name of the header with the sequence's id.
        start: Name of the header that begins one.
        end: Name of the header that ends one.
    """

    most: int
    queue_size: int
    idle_s: float
    total_s: float
    id: str
    start: str
    end: str


class Sequence:
    """One open sequence.

    Args:
        id: As the client calls it.
        now: When it began, on the caller's clock.
    """

    __slots__ = ("began_at", "closed", "heard_at", "id", "running", "waiting", "worker")

    def __init__(self, id: str, now: float) -> None:
        self.id = id
        self.began_at = self.heard_at = now
        self.worker: Worker | None = None
        self.running: InferenceRequest | None = None
        self.waiting: deque[InferenceRequest] = deque()
        self.closed = False


class SequenceQueue:
    """The waiting requests of all sequences of one model, with ``BatchQueue``'s methods.

    Args:
        settings: Limits and header names.
        batch_size: Largest number of requests in a batch.
        capacity: Largest number of waiting requests.
        workers: Returns how many workers share the sequences now.
    """

    def __init__(
        self,
        settings: SequenceSettings,
        batch_size: int,
        capacity: int,
        workers: Callable[[], int],
    ) -> None:
        self.batch_size = batch_size
        self.max_delay_s = 0.0
        self.capacity = capacity
        self.newest_at = 0.0
        self._settings = settings
        self._workers = workers
        self._open: dict[str, Sequence] = {}

    def __len__(self) -> int:
        return sum(len(sequence.waiting) for sequence in self._open.values())

    @property
    def oldest_at(self) -> float:
        """When the request came that waits for longest; infinite if none waits."""
        heads = (s.waiting[0].queued_at for s in self._open.values() if s.waiting)
        return min(heads, default=float("inf"))

    @property
    def remaining(self) -> int:
        """How many more requests may wait."""
        return max(0, self.capacity - len(self))

    def put(self, request: InferenceRequest, now: float) -> bool:
        """Appends a request to its sequence; False if too many wait altogether.

        Raises:
            ServiceUnavailable: If the sequence is not open, or has too many requests waiting.
        """
        self._forget(now)
        if not self.remaining:
            return False
        sequence = self._find(request, now)
        if len(sequence.waiting) >= self._settings.queue_size:
            raise _refused(sequence.id, f"has {self._settings.queue_size} requests waiting already")
        request.queued_at = self.newest_at = sequence.heard_at = now
        sequence.waiting.append(request)
        sequence.closed = _says(request, self._settings.end)
        return True

    def freed(self, now: float, answered: int) -> None:
        """Nobody is hoped for."""

    def cut(
        self, now: float, most: int | None = None, worker: Worker | None = None
    ) -> list[InferenceRequest]:
        """Returns what a worker should run now: at most one request of each of its sequences."""
        size = self.batch_size if most is None else min(most, self.batch_size)
        share = math.ceil(self._settings.most / max(1, self._workers()))
        held = sum(sequence.worker is worker for sequence in self._open.values())
        batch: list[InferenceRequest] = []
        for sequence in list(self._open.values()):
            _skip_cancelled(sequence)
            if len(batch) == size or sequence.running is not None or not sequence.waiting:
                continue
            if sequence.worker is None and held < share:
                sequence.worker = worker
                held += 1
            if sequence.worker is worker and _alike(batch, sequence.waiting[0]):
                sequence.running = sequence.waiting.popleft()
                batch.append(sequence.running)
        return batch

    def done(self, request: InferenceRequest, headers: dict[str, str], now: float) -> None:
        """Notes that a request is answered; a sequence that is over is forgotten.

        Args:
            request: One that was cut.
            headers: Of the answer; the one that ends sequences holds ids with ``;`` between.
            now: On the caller's clock.
        """
        for sequence in [s for s in self._open.values() if s.running is request]:
            sequence.running, sequence.heard_at = None, now
            if sequence.closed and not sequence.waiting:
                del self._open[sequence.id]
        ended = next((v for k, v in headers.items() if k.lower() == self._settings.end.lower()), "")
        for id in filter(None, map(str.strip, ended.split(";"))):
            if id in self._open and not self._open[id].waiting:
                del self._open[id]

    def lose(self, worker: Worker) -> list[InferenceRequest]:
        """Forgets the sequences of a worker that is gone; returns their waiting requests."""
        lost = [s for s in self._open.values() if s.worker is worker]
        for sequence in lost:
            del self._open[sequence.id]
        return [request for sequence in lost for request in sequence.waiting]

    def expired(self, now: float) -> list[InferenceRequest]:
        """Removes and returns the requests whose deadline has passed."""
        late = []
        for sequence in self._open.values():
            late += [r for r in sequence.waiting if r.deadline <= now]
            sequence.waiting = deque(r for r in sequence.waiting if r.deadline > now)
        return late

    def clear(self) -> list[InferenceRequest]:
        """Removes and returns everything."""
        everything = [r for sequence in self._open.values() for r in sequence.waiting]
        self._open.clear()
        return everything

    def put_back(self, requests: list[InferenceRequest]) -> None:
        """Nothing comes back: the state that a sequence had is gone with its worker."""

    def full(self) -> bool:
        """Nothing is sent ahead."""
        return False

    def due(self) -> float:
        """Nothing waits for company."""
        return 0.0

    def give_way(self, level: int) -> InferenceRequest | None:
        """Sequences have no priorities."""

    def _find(self, request: InferenceRequest, now: float) -> Sequence:
        names = self._settings
        id = _header(request, names.id)
        begins = _says(request, names.start)
        if id is None:
            id, begins = f"ts-seq-{uuid.uuid4()}", True
            request.headers = {**request.headers, names.id: id, names.start: "true"}
        sequence = self._open.get(id)
        if sequence is not None and sequence.closed:
            raise _refused(id, "is closed")
        if sequence is None:
            if not begins:
                raise _refused(
                    id, f"is not open: it has not begun ({names.start}: true) or is over"
                )
            if len(self._open) >= names.most:
                raise _refused(id, f"cannot begin: {names.most} are open (maxNumSequence)")
            sequence = self._open[id] = Sequence(id, now)
        return sequence

    def _forget(self, now: float) -> None:
        """Ends the sequences whose time is over; requests under way are still answered."""
        for sequence in list(self._open.values()):
            _skip_cancelled(sequence)
            quiet = sequence.running is None and not sequence.waiting
            idle = now - sequence.heard_at > self._settings.idle_s
            sequence.closed |= now - sequence.began_at > self._settings.total_s
            # Also when the caller of its end has left, or that of its begin before that was run.
            if quiet and (sequence.closed or idle or sequence.worker is None):
                del self._open[sequence.id]


def _refused(id: str, why: str) -> ServiceUnavailable:
    return ServiceUnavailable(f"Sequence {id[:100]} {why}.", retry_after_s=1)


def _header(request: InferenceRequest, name: str) -> str | None:
    lower = name.lower()
    return next((v for k, v in request.headers.items() if k.lower() == lower and v), None)


def _says(request: InferenceRequest, name: str) -> bool:
    return (_header(request, name) or "").lower() == "true"


def _skip_cancelled(sequence: Sequence) -> None:
    while sequence.waiting and sequence.waiting[0].cancelled:
        sequence.waiting.popleft()


def _alike(batch: list[InferenceRequest], request: InferenceRequest) -> bool:
    return not batch or batch[0].command == request.command
