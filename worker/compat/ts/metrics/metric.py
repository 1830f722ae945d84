"""``ts.metrics.metric``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.metric_types import Metric

__all__ = ["Metric"]
