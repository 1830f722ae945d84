"""``ts.metrics.metric_cache_errors``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.metric_cache import UnknownMetric as MetricsCacheKeyError

__all__ = ["MetricsCacheKeyError"]
