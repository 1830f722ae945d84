"""What a handler's metrics consist of: kinds, dimensions, single values."""

from __future__ import annotations

import enum
from collections.abc import Iterable

# How units are written out where a metric is printed.
UNITS = {
    "ms": "Milliseconds",
    "s": "Seconds",
    "percent": "Percent",
    "count": "Count",
    "MB": "Megabytes",
    "GB": "Gigabytes",
    "kB": "Kilobytes",
    "B": "Bytes",
    "": "unit",
    None: "unit",
}


class MetricTypes(enum.Enum):
    """Kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Dimension:
    """A name and a value that tell the series of a metric apart.

    Args:
        name: Such as ``Level``.
        value: Such as ``Model``.
    """

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: object) -> None:
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return f"{self.name}:{self.value}"


class Metric:
    """One value, made by a handler itself; report a list of them with ``emit_metrics``.

    Args:
        name: Of the metric.
        value: As reported.
        unit: Such as ``ms`` or ``count``.
        dimensions: In order.
        request_id: Of the request it is about, or None.
        metric_method: ``counter`` if ``update`` adds to the value; it replaces the value otherwise.
    """

    def __init__(
        self,
        name: str,
        value: float,
        unit: str | None,
        dimensions: Iterable[Dimension] = (),
        request_id: str | None = None,
        metric_method: str | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.unit = UNITS.get(unit, unit)
        self.dimensions = list(dimensions)
        self.request_id = request_id
        self.metric_method = metric_method

    def update(self, value: float) -> None:
        """Adds to a counter, sets any other value."""
        self.value = self.value + value if self.metric_method == "counter" else value

    def __str__(self) -> str:
        dimensions = ",".join(map(str, self.dimensions))
        return f"{self.name}.{self.unit}:{self.value}|#{dimensions}"
