"""``ts.metrics.metric_type_enum``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.metric_types import MetricTypes

__all__ = ["MetricTypes"]
