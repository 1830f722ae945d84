"""Micro-batching: parts of a batch overlap, one in preprocess while another is in inference."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any

STAGES = ("preprocess", "inference", "postprocess")


class MicroBatching:
    """Takes the place of a handler's ``handle`` and runs its three stages on parts of the batch.

    Assign it in the handler's constructor: ``self.handle = MicroBatching(self)``. The stages of
    different parts run at once, in threads, so they must not keep state of a batch in ``self``.

    Args:
        parent_handler: Has the stages.
        micro_batch_size: Requests in a part, at least 1; can be set later.
        parallelism: How many parts may be in each stage at once, 1 by default; can be set later.
    """

    def __init__(
        self,
        parent_handler: Any,
        micro_batch_size: int = 1,
        parallelism: Mapping[str, int] | None = None,
    ) -> None:
        self.handler = parent_handler
        self.micro_batch_size = micro_batch_size
        self._local = threading.local()
        self._pool: ThreadPoolExecutor | None = None
        self.parallelism = parallelism

    @property
    def micro_batch_size(self) -> int:
        """Requests in a part."""
        return self._micro_batch_size

    @micro_batch_size.setter
    def micro_batch_size(self, size: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"micro_batch_size: expected a whole number >= 1, got {size!r}")
        self._micro_batch_size = size

    @property
    def parallelism(self) -> dict[str, int]:
        """How many parts may be in each stage at once."""
        return dict(self._parallelism)

    @parallelism.setter
    def parallelism(self, parallelism: Mapping[str, int] | None) -> None:
        given = dict(parallelism or {})
        for stage, count in given.items():
            if stage not in STAGES:
                raise ValueError(f"parallelism: no stage {stage!r}; there are {', '.join(STAGES)}")
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"parallelism: {stage}: expected a number >= 1, got {count!r}")
        self.shutdown()
        self._parallelism = dict.fromkeys(STAGES, 1) | given
        self._slots = {s: threading.BoundedSemaphore(n) for s, n in self._parallelism.items()}

    def __call__(self, data: list[Any], context: Any) -> list[Any]:
        """Answers a batch; explanations and descriptions go the handler's own way.

        Args:
            data: One row a request.
            context: The context of this batch.

        Returns:
            One result a request.
        """
        begin = time.perf_counter()
        handler = self.handler
        handler.context = context
        if handler._is_describe():
            results: list[Any] = [handler.describe_handle()]
        elif handler._is_explain():
            results = handler.explain_handle(handler.preprocess(data), data)
        else:
            results = self.handle(data)
        elapsed_ms = (time.perf_counter() - begin) * 1e3
        context.metrics.add_time("HandlerTime", round(elapsed_ms, 2), None, "ms")
        return results

    def handle(self, data: list[Any]) -> list[Any]:
        """Runs the stages on parts of a batch and returns their results in the batch's order.

        Raises:
            Exception: The first that a part raised, once no part is running any more.
        """
        size = self._micro_batch_size
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        if self._pool is None:
            count = sum(self._parallelism.values())
            self._pool = ThreadPoolExecutor(count, "micro-batch")
        futures: list[Future[list[Any]]] = [
            self._pool.submit(self._run, index, part) for index, part in enumerate(parts)
        ]
        wait(futures)
        return [result for future in futures for result in future.result()]

    def get_micro_batch_idx(self) -> int:
        """Returns which part of the batch the calling stage is at work on, from 0."""
        return getattr(self._local, "index", 0)

    def shutdown(self) -> None:
        """Ends the threads; the next batch starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _run(self, index: int, data: Any) -> list[Any]:
        self._local.index = index
        for stage in STAGES:
            slot: AbstractContextManager[Any] = self._slots[stage]
            with slot:
                data = getattr(self.handler, stage)(data)
        results: list[Any] = data
        return results
