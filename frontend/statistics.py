"""What a version of a model has answered since it was loaded: numbers that its clients may ask."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from marserve.frontend.types import InferenceRequest


class Statistics:
    """Sums over the requests and batches of one version; times are seconds.

    Args:
        measure: Also gets what ``batch`` does.

    Attributes:
        last_at: When the last request was answered, epoch seconds; 0 for never.
        rows: Carried by all requests that were answered.
        successes: Requests that were answered; ``success_s`` their time since they came.
        failures: Requests that failed; ``failure_s`` likewise.
        queue_s: The part of ``success_s`` before a worker had them.
        batches: How often, and for how long, the model has run by rows of a batch: times of the
            handler, and from the sending to the answer besides.
    """

    __slots__ = (
        "_measure",
        "batches",
        "failure_s",
        "failures",
        "handler_s",
        "last_at",
        "queue_s",
        "rows",
        "success_s",
        "successes",
        "transport_s",
    )

    def __init__(self, measure: Callable[[list[InferenceRequest], float, float], None]) -> None:
        self._measure = measure
        self.last_at = 0.0
        self.rows = self.successes = self.failures = 0
        self.success_s = self.failure_s = self.queue_s = self.handler_s = self.transport_s = 0.0
        self.batches: dict[int, list[float]] = {}

    def request(self, request: InferenceRequest, failed: bool, now: float) -> None:
        """Counts an answered request; ``now`` is on the clock of its times."""
        took_s = now - request.queued_at
        if failed:
            self.failures += 1
            self.failure_s += took_s
        else:
            self.successes += 1
            self.rows += request.rows
            self.success_s += took_s
            self.queue_s += request.sent_at - request.queued_at

    def batch(self, requests: list[InferenceRequest], took_s: float, handler_s: float) -> None:
        """Counts an answered batch: its time at the worker, and the handler's part of that."""
        self._measure(requests, took_s, handler_s)
        count = len(requests)
        rows = count
        for request in requests:
            rows += request.rows - 1
        one = self.batches.get(rows)
        if one is None:
            one = self.batches[rows] = [0.0, 0.0, 0.0]
        one[0] += 1
        one[1] += handler_s
        one[2] += took_s - handler_s
        self.handler_s += handler_s * count
        self.transport_s += (took_s - handler_s) * count
        self.last_at = time.time()
