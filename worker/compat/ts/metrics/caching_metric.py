"""``ts.metrics.caching_metric``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.metric_cache import CachingMetric

__all__ = ["CachingMetric"]
