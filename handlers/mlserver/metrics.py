"""``mlserver.register`` and ``mlserver.log``: a runtime's own metrics, histograms all of them."""

from __future__ import annotations

from typing import Any

from marserve.handlers.metric_types import MetricTypes

_receiver: list[Any] = []
_descriptions: dict[str, str] = {}


def connect(metrics: Any) -> None:
    """Says where values go: the ``metrics`` of the model's context."""
    _receiver[:] = [metrics]


def register(name: str, description: str) -> _Registered:
    """Makes a metric known; one that is logged without it needs no description."""
    _descriptions[name] = description
    return _Registered(name)


def log(**metrics: float) -> None:
    """Observes one value of each metric that is named."""
    for name, value in metrics.items():
        for receiver in _receiver:
            receiver.add_metric(name, float(value), "count", metric_type=MetricTypes.HISTOGRAM)


class _Registered:
    """A metric by its name.

    Args:
        name: Of the metric.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def observe(self, value: float) -> None:
        """Observes a value."""
        log(**{self.name: value})
