"""Counters, gauges and histograms, and the Prometheus text format 0.0.4 as TorchServe writes it.

A family's children are looked up once and kept; counting is then one addition on one object. All of
it belongs to the event loop's thread, so there are no locks. The text has a comma after the last
label and no ``_total`` of its own making, as scrapers of TorchServe expect; that is why this is not
the usual client library.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence

DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
MAX_CHILDREN = 2000
"""Label sets of one family; a handler that labels by request must not fill the memory."""

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

OnChange = Callable[["Family", "tuple[str, ...]", float], None]


class Value:
    """One time series of a counter or a gauge; a histogram's is ``Distribution``."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float) -> None:
        """Adds to a counter."""
        self.value += amount

    def set(self, value: float) -> None:
        """Sets a gauge."""
        self.value = value


class Distribution(Value):
    """One time series of a histogram; ``value`` is the sum of what was observed.

    Args:
        bounds: Upper bounds of the buckets, ascending, without infinity.
    """

    __slots__ = ("bounds", "counts")

    def __init__(self, bounds: Sequence[float] = DEFAULT_BUCKETS) -> None:
        super().__init__()
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)

    def add(self, amount: float) -> None:
        """Counts an observation."""
        self.counts[bisect_left(self.bounds, amount)] += 1
        self.value += amount

    def set(self, value: float) -> None:
        """Counts an observation."""
        self.add(value)


class _Watched(Value):
    """Tells of every change, for the modes that write lines; keeps the value as well."""

    __slots__ = ("_inner", "_tell")

    def __init__(self, inner: Value, tell: Callable[[float], None]) -> None:
        super().__init__()
        self._inner = inner
        self._tell = tell

    def add(self, amount: float) -> None:
        self._inner.add(amount)
        self._tell(amount)

    def set(self, value: float) -> None:
        self._inner.set(value)
        self._tell(value)


class Family:
    """A metric with its time series, one a set of label values.

    Args:
        name: Valid in Prometheus; see ``safe_name``.
        kind: ``counter``, ``gauge`` or ``histogram``.
        unit: For the help text and for log lines.
        labels: Label names, in order.
        watch: Told of every change: family, label values, the amount or value given.
        bounds: Of a histogram's buckets; see ``Distribution``.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        unit: str,
        labels: Sequence[str],
        watch: OnChange | None = None,
        bounds: Sequence[float] = DEFAULT_BUCKETS,
    ) -> None:
        self._bounds = bounds
        self.name = name
        self.kind = kind
        self.unit = unit
        self.labels = tuple(labels)
        self._watch = watch
        self._children: dict[tuple[str, ...], Value] = {}
        self._handles: dict[tuple[str, ...], Value] = {}

    def child(self, *values: str) -> Value:
        """Returns the time series of these label values, made on first use; keep it.

        Raises:
            ValueError: If the number of values is not that of the labels, or there are too many
                time series.
        """
        found = self._handles.get(values)
        return found if found is not None else self._make(values)

    def discard(self, *values: str) -> None:
        """Forgets the time series of these label values, if there is one."""
        self._children.pop(values, None)
        self._handles.pop(values, None)

    def _make(self, values: tuple[str, ...]) -> Value:
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not values {values}")
        if len(self._children) >= MAX_CHILDREN:
            raise ValueError(f"{self.name} has {MAX_CHILDREN} label sets already")
        child = Distribution(self._bounds) if self.kind == "histogram" else Value()
        self._children[values] = self._handles[values] = child
        if (watch := self._watch) is not None:
            self._handles[values] = _Watched(child, lambda amount: watch(self, values, amount))
        return self._handles[values]

    def render(self, names: Collection[str] = ()) -> list[str]:
        """Returns the lines of this family.

        Args:
            names: Samples to keep, all if empty; a histogram may also be named as a whole.
        """
        samples = [
            line
            for name, line in self._samples()
            if not names or name in names or self.name in names
        ]
        if names and not samples:
            return []
        unit = f"Torchserve prometheus {self.kind} metric with unit: {self.unit}"
        help_text = unit.translate(_ESCAPES)
        return [f"# HELP {self.name} {help_text}", f"# TYPE {self.name} {self.kind}", *samples]

    def _samples(self) -> Iterator[tuple[str, str]]:
        for values, child in self._children.items():
            pairs = "".join(
                f'{label}="{value.translate(_ESCAPES)}",'
                for label, value in zip(self.labels, values, strict=True)
            )
            if isinstance(child, Distribution):
                yield from self._buckets(pairs, child)
            else:
                yield self.name, f"{self.name}{{{pairs}}} {number(child.value)}"

    def _buckets(self, pairs: str, child: Distribution) -> Iterator[tuple[str, str]]:
        total = 0
        for bound, count in zip((*child.bounds, math.inf), child.counts, strict=True):
            total += count
            name = f"{self.name}_bucket"
            yield name, f'{name}{{{pairs}le="{number(bound)}",}} {number(total)}'
        labels = f"{{{pairs}}}" if pairs else ""
        yield f"{self.name}_count", f"{self.name}_count{labels} {number(total)}"
        yield f"{self.name}_sum", f"{self.name}_sum{labels} {number(child.value)}"


def number(value: float) -> str:
    """Returns a number as the format wants it, with a point: ``3.0``, ``1.5e+20``, ``+Inf``."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    text = repr(float(value))
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa}.0e{power}" if exponent and "." not in mantissa else text


def safe_name(name: str) -> str:
    """Returns a valid metric or label name; what is not allowed becomes an underscore."""
    text = re.sub(r"[^a-zA-Z0-9_:]", "_", name)
    return text if text and not text[0].isdigit() else f"_{text}"
