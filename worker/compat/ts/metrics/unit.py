"""``ts.metrics.unit``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.metric_types import UNITS


class Units:
    """Units by their short name."""

    def __init__(self) -> None:
        self.units = dict(UNITS)
