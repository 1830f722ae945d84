"""``ts.metrics.metrics_store``, as handlers and their tests import it."""

from __future__ import annotations

from collections.abc import Mapping

from marserve.handlers.metrics import HandlerMetrics


class MetricsStore(HandlerMetrics):
    """A handler's metrics, made by its own tests.

    Args:
        request_ids: Ids of the batch by index.
        model_name: Name of the model.
    """

    def __init__(self, request_ids: Mapping[int, str] | str | None, model_name: str) -> None:
        super().__init__(model_name)
        self.set_request_ids(request_ids)
