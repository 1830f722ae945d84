"""``ts.metrics.dimension``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.metric_types import Dimension

__all__ = ["Dimension"]
