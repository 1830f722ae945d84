"""Metrics of handlers: what ``context.metrics`` is.

A handler reports values; the worker takes them over with ``drain`` and sends them to the server.
A metric that is reported wrongly never fails a prediction: it is left out, and logged once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marserve.handlers.metric_cache import MetricCache, UnknownMetric
from marserve.handlers.metric_types import Dimension, Metric, MetricTypes

__all__ = ["HandlerMetrics", "UnknownMetric", "emit_metrics"]

_DEFAULTS = ("ModelName", "Level")
_latest: list[HandlerMetrics] = []


class HandlerMetrics(MetricCache):
    """The metrics of one worker's handler.

    Attributes:
        model_name: Default value of the dimension ``ModelName``.
        request_ids: Request id by index in the batch; None before the first batch.

    Args:
        model_name: Name of the model.
        config: Plain values of metrics.yaml; ``model_metrics`` of it is read.
        auto_detect: Whether metrics that the file does not name are accepted.
    """

    def __init__(
        self, model_name: str, config: Mapping[str, Any] | None = None, auto_detect: bool = True
    ) -> None:
        super().__init__(config)
        self.model_name = model_name
        self._auto_detect = auto_detect
        self._request_ids: str | Mapping[int, str] | None = None
        _latest[:] = [self]

    @property
    def request_ids(self) -> dict[int, str] | None:
        """Request id by index in the batch; None before the first batch."""
        ids = self._request_ids
        if isinstance(ids, str):
            return dict(enumerate(ids.split(",")))
        return None if ids is None else dict(ids)

    @request_ids.setter
    def request_ids(self, request_ids: str | Mapping[int, str] | None) -> None:
        self._request_ids = request_ids

    def set_request_ids(self, request_ids: str | Mapping[int, str] | None) -> None:
        """Says which requests the values from now on are about.

        Args:
            request_ids: Ids of the batch by index, or joined by commas in the batch's order.
        """
        self._request_ids = request_ids

    def add_metric(
        self,
        name: str,
        value: float,
        unit: str | None = None,
        idx: int | None = None,
        dimensions: Iterable[Dimension] | None = None,
        metric_type: MetricTypes | str = MetricTypes.COUNTER,
    ) -> None:
        """Reports a value; the dimensions ``ModelName`` and ``Level`` are added.

        Args:
            name: Of the metric.
            value: The value, or a counter's increment.
            unit: Such as ``ms`` or ``count``.
            idx: Index of the request it is about; None for the whole batch.
            dimensions: Besides the two.
            metric_type: Kind of the metric.
        """
        ids = self._ids(idx)
        level = "Error" if ids is None else "Model"
        self._add(name, value, unit, MetricTypes(metric_type), dimensions, level, ids or "")

    def add_counter(
        self,
        name: str,
        value: float,
        idx: int | None = None,
        dimensions: Iterable[Dimension] | None = None,
    ) -> None:
        """Adds to a counter."""
        self.add_metric(name, value, "count", idx, dimensions, MetricTypes.COUNTER)

    def add_time(
        self,
        name: str,
        value: float,
        idx: int | None = None,
        unit: str = "ms",
        dimensions: Iterable[Dimension] | None = None,
        metric_type: MetricTypes | str = MetricTypes.GAUGE,
    ) -> None:
        """Reports a time, in ``ms`` or ``s``."""
        if self._has_unit(name, unit, ("ms", "s")):
            self.add_metric(name, value, unit, idx, dimensions, metric_type)

    def add_size(
        self,
        name: str,
        value: float,
        idx: int | None = None,
        unit: str = "MB",
        dimensions: Iterable[Dimension] | None = None,
        metric_type: MetricTypes | str = MetricTypes.GAUGE,
    ) -> None:
        """Reports a size, in ``B``, ``kB``, ``MB`` or ``GB``."""
        if self._has_unit(name, unit, ("B", "kB", "MB", "GB")):
            self.add_metric(name, value, unit, idx, dimensions, metric_type)

    def add_percent(
        self,
        name: str,
        value: float,
        idx: int | None = None,
        dimensions: Iterable[Dimension] | None = None,
        metric_type: MetricTypes | str = MetricTypes.GAUGE,
    ) -> None:
        """Reports a percentage."""
        self.add_metric(name, value, "percent", idx, dimensions, metric_type)

    def add_error(
        self, name: str, value: float, dimensions: Iterable[Dimension] | None = None
    ) -> None:
        """Adds to a counter of errors; its ``Level`` is ``Error``."""
        ids = self._ids(None) or ""
        self._add(name, value, "", MetricTypes.COUNTER, dimensions, "Error", ids)

    def _add(
        self,
        name: str,
        value: float,
        unit: str | None,
        kind: MetricTypes,
        dimensions: Iterable[Dimension] | None,
        level: str,
        request_ids: str,
    ) -> None:
        given = {str(each.name): each.value for each in dimensions or ()}
        given.setdefault("ModelName", self.model_name)
        given.setdefault("Level", level)
        metric = self.cache[kind].get(name)
        if metric is None:
            if not self._auto_detect:
                return self.complain(name, f"is no {kind.value} of metrics.yaml")
            metric = self._cached(name, unit, list(given), kind)
        names = metric.dimension_names
        if not given.keys() - _DEFAULTS <= set(names) <= given.keys():
            return self.complain(name, f"expected the dimensions {names}, got {list(given)}")
        return metric.add_or_update(value, [given[each] for each in names], request_ids)

    def _ids(self, idx: int | None) -> str | None:
        """The ids that a value is about; None outside of any batch."""
        if idx is not None:
            return (self.request_ids or {}).get(idx)
        ids = self._request_ids
        return ids if ids is None or isinstance(ids, str) else ",".join(ids.values())

    def _has_unit(self, name: str, unit: str, known: Sequence[str]) -> bool:
        if unit not in known:
            self.complain(name, f"unit {unit!r} is none of {', '.join(known)}")
        return unit in known


def emit_metrics(metrics: Iterable[Metric] | HandlerMetrics | None) -> None:
    """Reports values that a handler made itself.

    Args:
        metrics: ``Metric`` objects; or a handler's metrics, whose values are reported anyway.
    """
    if metrics is None or isinstance(metrics, HandlerMetrics):
        return
    for receiver in _latest:  # a worker has one handler, and this function is told no context
        values = list(metrics)
        if metrics is receiver.store:
            receiver.store.clear()
        receiver.emit(values)
