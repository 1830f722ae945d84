"""Where the time of requests goes: histograms of queue, batch, worker and handler."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marserve.frontend.instruments import Distribution, Value
    from marserve.frontend.types import InferenceRequest

STAGES = (
    "ts_queue_seconds",
    "ts_batch_wait_seconds",
    "ts_batch_size",
    "ts_worker_seconds",
    "ts_handler_seconds",
    "ts_preprocess_seconds",
    "ts_inference_seconds",
    "ts_postprocess_seconds",
    "ts_encode_seconds",
)


class StageMetrics:
    """Measures the batches of one version of a model; made by ``Telemetry.stages``.

    Args:
        queue_s: A request's time in the queue.
        batch_wait_s: The last part of that, while a worker was free, of a batch's first request.
        batch_size: Requests of a batch.
        worker_s: A batch's time from its sending to its last answer.
        handler_s: The part of that which was spent in the handler.
        stages_s: Calls of the handler's stages, in the order of ``worker/stages.py``.
        overhead_ms: The last batch's other part, milliseconds.
    """

    __slots__ = (
        "_batch_size",
        "_batch_wait_s",
        "_handler_s",
        "_overhead_ms",
        "_queue_s",
        "_stages_s",
        "_worker_s",
    )

    def __init__(
        self,
        queue_s: Distribution,
        batch_wait_s: Distribution,
        batch_size: Distribution,
        worker_s: Distribution,
        handler_s: Distribution,
        *stages_s: Distribution,
        overhead_ms: Value,
    ) -> None:
        self._queue_s = queue_s
        self._batch_wait_s = batch_wait_s
        self._batch_size = batch_size
        self._worker_s = worker_s
        self._handler_s = handler_s
        self._stages_s = stages_s
        self._overhead_ms = overhead_ms

    def sent(self, waited_s: float) -> None:
        """Measures one batch that is being sent: how long a free worker waited for company."""
        one = self._batch_wait_s
        one.counts[bisect_left(one.bounds, waited_s)] += 1
        one.value += waited_s

    def handled(self, spans: list[tuple[int, float]]) -> None:
        """Measures calls of a handler's stages: which one, and its seconds."""
        for stage, took_s in spans:
            one = self._stages_s[stage]
            one.counts[bisect_left(one.bounds, took_s)] += 1
            one.value += took_s

    def batch(self, requests: list[InferenceRequest], took_s: float, handler_s: float) -> None:
        """Measures one batch that is answered; this is on every request's way, so it is plain."""
        _add(self._queue_s, [r.sent_at - r.queued_at for r in requests])
        one = self._batch_size
        one.counts[bisect_left(one.bounds, len(requests))] += 1
        one.value += len(requests)
        one = self._worker_s
        one.counts[bisect_left(one.bounds, took_s)] += 1
        one.value += took_s
        one = self._handler_s
        one.counts[bisect_left(one.bounds, handler_s)] += 1
        one.value += handler_s
        self._overhead_ms.set((took_s - handler_s) * 1e3)


def _add(distribution: Distribution, amounts: Iterable[float]) -> None:
    counts, bounds = distribution.counts, distribution.bounds
    for amount in amounts:
        counts[bisect_left(bounds, amount)] += 1
        distribution.value += amount
