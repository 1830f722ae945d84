"""``ts.service``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.errors import PredictionException
from marserve.handlers.metrics import emit_metrics

__all__ = ["PredictionException", "emit_metrics"]
