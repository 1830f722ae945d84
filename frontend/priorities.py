"""Priorities: which level a request has, and a queue that serves the first level first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from marserve.frontend.errors import BadRequest
from marserve.frontend.types import InferenceRequest

PRIORITY_HEADER = "x-marserve-priority"


def level_of(request: InferenceRequest, levels: int, default: int) -> int:
    """Returns the level of a request: its own, else its header's, else the default.

    Args:
        request: Its own ``priority`` is 0 if its surface has no such parameter.
        levels: 1 (served first) to this.
        default: For requests that name none, or 0.

    A level beyond the last one counts as the default, as with Triton: versions of a model may
    have different levels.

    Raises:
        BadRequest: If what it names is no level at all.
    """
    named: int | str = request.priority or _header(request.headers)
    try:
        level = int(named)
    except ValueError:
        level = -1
    if level < 0:
        raise BadRequest(
            f"The priority must be 1 (first) to {levels}, or 0 for the default, not {named!r:.40}."
        )
    return level if 0 < level <= levels else default


def _header(headers: Mapping[str, str]) -> str:
    """Headers are as the client spelt them."""
    return next((v for name, v in headers.items() if name.lower() == PRIORITY_HEADER), "0")


class Levels:
    """A line a level, used as one deque: its head is the head of the first line that has one.

    Every operation but iteration takes the same time however many wait.

    Args:
        count: Number of levels.
        requests: The first to wait.
    """

    def __init__(self, count: int, requests: Iterable[InferenceRequest] = ()) -> None:
        self._lines: list[deque[InferenceRequest]] = [deque() for _ in range(count + 1)]
        self._occupied = 0  # bit n: level n has somebody waiting
        self._count = 0
        for request in requests:
            self.append(request)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[InferenceRequest]:
        for line in self._lines:
            yield from line

    def __getitem__(self, index: int) -> InferenceRequest:
        return self._first()[index]

    def append(self, request: InferenceRequest) -> None:
        """Adds a request at the end of its level's line."""
        self._lines[request.priority].append(request)
        self._occupied |= 1 << request.priority
        self._count += 1

    def extendleft(self, requests: Iterable[InferenceRequest]) -> None:
        """Adds requests one by one at the head of their levels' lines."""
        for request in requests:
            self._lines[request.priority].appendleft(request)
            self._occupied |= 1 << request.priority
            self._count += 1

    def popleft(self) -> InferenceRequest:
        """Takes the head out."""
        line = self._first()
        request = line.popleft()
        self._taken(line, request)
        return request

    def give_way(self, level: int) -> InferenceRequest | None:
        """Takes out the newest request of the last level, if that is a later one than ``level``."""
        last = self._occupied.bit_length() - 1
        if last <= level:
            return None
        line = self._lines[last]
        request = line.pop()
        self._taken(line, request)
        return request

    def clear(self) -> None:
        """Takes everything out."""
        for line in self._lines:
            line.clear()
        self._occupied = self._count = 0

    def waiting_at(self, level: int) -> int:
        """Returns how many requests of a level wait."""
        return len(self._lines[level])

    def oldest_at(self) -> float:
        """Returns when the request came that waits for longest; infinite if none waits."""
        return min((line[0].queued_at for line in self._lines if line), default=float("inf"))

    def _first(self) -> deque[InferenceRequest]:
        if not self._occupied:
            raise IndexError("nobody waits")
        return self._lines[(self._occupied & -self._occupied).bit_length() - 1]

    def _taken(self, line: deque[InferenceRequest], request: InferenceRequest) -> None:
        self._count -= 1
        if not line:
            self._occupied &= ~(1 << request.priority)
