"""What a Triton model logs and measures."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from marserve.handlers.triton.errors import TritonModelException


class Logger:
    """Writes to the model log, a line a message."""

    INFO, WARNING, ERROR, VERBOSE = "INFO", "WARNING", "ERROR", "VERBOSE"

    @classmethod
    def log(cls, message: str, level: str = INFO) -> None:
        """Writes a message with its level."""
        print(f"[{level}] {message}", file=sys.stderr, flush=True)

    @classmethod
    def log_info(cls, message: str) -> None:
        """Writes what is good to know."""
        cls.log(message, cls.INFO)

    @classmethod
    def log_warn(cls, message: str) -> None:
        """Writes what may be a mistake."""
        cls.log(message, cls.WARNING)

    @classmethod
    def log_error(cls, message: str) -> None:
        """Writes what went wrong."""
        cls.log(message, cls.ERROR)

    @classmethod
    def log_verbose(cls, message: str) -> None:
        """Writes what only helps to find a fault; such lines are dropped."""


class MetricSeries:
    """One series of a family.

    Args:
        family: Which it belongs to.
        labels: Names and values.
    """

    def __init__(self, family: MetricFamily, labels: Mapping[str, str]) -> None:
        self._family = family
        self._labels = [(str(name), str(value)) for name, value in labels.items()]
        self._value = 0.0

    def increment(self, value: float) -> None:
        """Adds to a counter, which takes nothing negative, or to a gauge.

        Raises:
            TritonModelException: If it can do neither.
        """
        kind = self._family.kind
        if kind == MetricFamily.HISTOGRAM or (kind == MetricFamily.COUNTER and value < 0):
            raise TritonModelException(f"a {kind} cannot be incremented by {value}")
        self._value += value
        self._report(value if kind == MetricFamily.COUNTER else self._value)

    def set(self, value: float) -> None:
        """Sets a gauge.

        Raises:
            TritonModelException: If it is none.
        """
        if self._family.kind != MetricFamily.GAUGE:
            raise TritonModelException(f"a {self._family.kind} cannot be set")
        self._value = float(value)
        self._report(self._value)

    def observe(self, value: float) -> None:
        """Takes one observation of a histogram.

        Raises:
            TritonModelException: If it is none.
        """
        if self._family.kind != MetricFamily.HISTOGRAM:
            raise TritonModelException(f"a {self._family.kind} observes nothing")
        self._report(value)

    def value(self) -> float:
        """Returns the value of a counter or gauge, as far as this worker has changed it."""
        return self._value

    def _report(self, value: float) -> None:
        if MetricFamily.metrics is not None:
            MetricFamily.metrics.report(
                self._family.name, float(value), "", self._family.kind, self._labels, ""
            )


class MetricFamily:
    """A metric of the model's own, on the server's page of metrics.

    Args:
        name: Of the metric.
        description: Accepted; the page has the name.
        kind: ``COUNTER``, ``GAUGE`` or ``HISTOGRAM``.
    """

    COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
    metrics: ClassVar[Any] = None
    """Takes the values; set for a worker's life."""

    def __init__(self, name: str, description: str = "", kind: str = COUNTER) -> None:
        self.name, self.description, self.kind = name, description, kind

    def Metric(
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> MetricSeries:
        """Returns a series; the buckets of a histogram are those of metrics.yaml."""
        return MetricSeries(self, labels or {})
