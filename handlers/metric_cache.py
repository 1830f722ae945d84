"""The metrics that a handler knows by name, and the values that wait to be sent.

A metric that is reported wrongly never fails a prediction: it is left out, and logged once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marserve.handlers.metric_types import Dimension, Metric, MetricTypes

logger = logging.getLogger(__name__)

Values = tuple[str, float, str, str, list[tuple[str, str]], str]
"""Name, value, unit, kind, dimensions as (name, value), request ids joined by commas."""

_MOST_WAITING = 100_000  # a thread that reports while no request comes must not fill the memory
_MOST_COMPLAINTS = 1000


class UnknownMetric(KeyError):
    """There is no metric of this kind and name."""


class CachingMetric:
    """A metric by name; made by ``MetricCache``, which the values go to.

    Args:
        metrics: Takes the values.
        metric_name: Of the metric.
        unit: Such as ``ms`` or ``count``.
        dimension_names: In order.
        metric_type: Its kind.
    """

    def __init__(
        self,
        metrics: MetricCache,
        metric_name: str,
        unit: str,
        dimension_names: Sequence[str],
        metric_type: MetricTypes,
    ) -> None:
        self._metrics = metrics
        self.metric_name = metric_name
        self.unit = unit
        self.dimension_names = list(dimension_names)
        self.metric_type = metric_type

    def add_or_update(
        self, value: float, dimension_values: Iterable[object] = (), request_id: str = ""
    ) -> None:
        """Adds to a counter, sets a gauge, observes in a histogram.

        Args:
            value: The value, or a counter's increment.
            dimension_values: One a dimension, in their order.
            request_id: Of the request it is about, if it is about one.
        """
        texts = [str(text) for text in dimension_values]
        names = self.dimension_names
        if len(texts) != len(names):
            self._metrics.complain(
                self.metric_name, f"expected values of the dimensions {names}, got {texts}"
            )
            return
        pairs = list(zip(names, texts, strict=True))
        kind = self.metric_type.value
        self._metrics.report(self.metric_name, value, self.unit, kind, pairs, request_id)

    def update(
        self, value: float, request_id: str = "", dimensions: Iterable[Dimension] = ()
    ) -> None:
        """Like ``add_or_update``, with dimensions in place of their values."""
        self.add_or_update(value, [each.value for each in dimensions], request_id)


class MetricCache:
    """Metrics by kind and name, and what was reported of them.

    Attributes:
        cache: Metrics by kind, then by name.
        store: ``Metric`` objects that a handler appends are reported with the rest.

    Args:
        config: Plain values of metrics.yaml; ``model_metrics`` of it is read.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.cache: dict[MetricTypes, dict[str, CachingMetric]] = {}
        self.store: list[Metric] = []
        self._waiting: list[Values] = []
        self._complained: set[tuple[str, str]] = set()
        declared = (config or {}).get("model_metrics") or {}
        for kind in MetricTypes:
            self.cache[kind] = {}
            for item in declared.get(kind.value) or ():
                self._cached(item["name"], item.get("unit"), item.get("dimensions") or (), kind)

    def get_metric(
        self, metric_name: str, metric_type: MetricTypes | str = MetricTypes.COUNTER
    ) -> CachingMetric:
        """Returns a metric that metrics.yaml names or that was added.

        Raises:
            UnknownMetric: If there is none of this kind and name.
        """
        kind = MetricTypes(metric_type)
        try:
            return self.cache[kind][metric_name]
        except KeyError:
            known = ", ".join(sorted(self.cache[kind])) or "none"
            raise UnknownMetric(
                f"no {kind.value} named {metric_name!r} (there are: {known}); name it in"
                " metrics.yaml or add it with add_metric_to_cache"
            ) from None

    def add_metric_to_cache(
        self,
        metric_name: str,
        unit: str | None,
        dimension_names: Sequence[str] = (),
        metric_type: MetricTypes | str = MetricTypes.COUNTER,
    ) -> CachingMetric:
        """Makes a metric known; the one that is known already is returned as it is."""
        kind = MetricTypes(metric_type)
        found = self.cache[kind].get(metric_name)
        if found is None:
            return self._cached(metric_name, unit, dimension_names, kind)
        if found.dimension_names != list(dimension_names):
            text = f"metric {metric_name} keeps its dimensions {found.dimension_names}"
            logger.warning("%s, not %s", text, list(dimension_names))
        return found

    def report(
        self,
        name: str,
        value: float,
        unit: str,
        kind: str,
        dimensions: list[tuple[str, str]],
        request_ids: str = "",
    ) -> None:
        """Takes one value; one that is no number, or takes from a counter, is left out."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            return self.complain(name, f"expected a number, got {value!r:.80}")
        if kind == "counter" and not 0 <= number < math.inf:
            return self.complain(name, f"a counter only grows, got {number}")
        if len(self._waiting) >= _MOST_WAITING:
            return self.complain(name, f"more than {_MOST_WAITING} values between two batches")
        self._waiting.append((name, number, unit, kind, dimensions, request_ids))
        return None

    def drain(self) -> list[Values]:
        """Returns and forgets what was reported since the last call."""
        if emitted := self.store[:]:
            del self.store[: len(emitted)]  # in place: the contexts of other requests share it
            self.emit(emitted)
        waiting = self._waiting
        if not waiting:
            return []
        taken = waiting[:]
        del waiting[: len(taken)]  # in place: another thread may be appending
        return taken

    def emit(self, metrics: Iterable[Metric]) -> None:
        """Reports values that the handler made itself, with the dimensions they have."""
        for each in metrics:
            kind = "counter" if each.metric_method == "counter" else "gauge"
            pairs = [(str(d.name), str(d.value)) for d in each.dimensions]
            unit = str(each.unit or "")
            self.report(str(each.name), each.value, unit, kind, pairs, each.request_id or "")

    def complain(self, name: str, text: str) -> None:
        """Logs what is wrong with a metric, once."""
        reason = name, text[:16]  # the rest may hold the value, which differs from call to call
        if reason not in self._complained and len(self._complained) < _MOST_COMPLAINTS:
            self._complained.add(reason)
            logger.error("metric %s: %s; its value is left out", name, text)

    def _cached(
        self, name: str, unit: str | None, dimension_names: Sequence[str], kind: MetricTypes
    ) -> CachingMetric:
        metric = CachingMetric(self, str(name), str(unit or ""), dimension_names, kind)
        self.cache[kind][metric.metric_name] = metric
        return metric
