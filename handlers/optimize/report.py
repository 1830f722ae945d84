"""What was measured: as values, as JSON, and as a table for the terminal."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from marserve.handlers.optimize.accuracy import Accuracy

State = Literal["ok", "outside tolerance", "cannot run"]


@dataclass(frozen=True, slots=True)
class Timing:
    """The runs of one cell.

    Args:
        rows: Of the batch.
        times_ms: One a run.
    """

    rows: int
    times_ms: list[float]

    def percentile_ms(self, percent: float) -> float:
        """Returns the time that so many percent of the runs did not exceed."""
        ordered = sorted(self.times_ms)
        return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]

    @property
    def rows_per_s(self) -> float:
        """Rows a second, of runs one after the other at their median."""
        return 1000 * self.rows / self.percentile_ms(50)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        shown = {f"p{percent}_ms": self.percentile_ms(percent) for percent in (50, 95, 99)}
        return {
            "rows": self.rows,
            "runs": len(self.times_ms),
            **{name: round(value, 4) for name, value in shown.items()},
            "rows_per_s": round(self.rows_per_s, 2),
        }


@dataclass(slots=True)
class Result:
    """One mode.

    Args:
        state: Whether it can be chosen.
        reason: Why not, or empty.
        load_s: Seconds to load and warm up, without imports that all share.
        memory_mb: Resident memory after the runs.
        archive_mb: Size of the files of its archive.
        accuracy: Against eager float32.
        timings: By the cell's name.
    """

    state: State = "ok"
    reason: str = ""
    load_s: float | None = None
    memory_mb: float | None = None
    archive_mb: float | None = None
    accuracy: Accuracy | None = None
    timings: dict[str, Timing] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        plain = asdict(self)
        plain["timings"] = {name: timing.as_dict() for name, timing in self.timings.items()}
        if self.accuracy:
            plain["accuracy"]["largest"] = _finite(self.accuracy.largest)
        return plain


@dataclass(slots=True)
class Report:
    """Everything that was measured.

    Args:
        machine: What the numbers depend on besides the archive.
        archive: Name of the archive.
        compared: Rows that the outputs were compared on.
        samples: Whether they are samples of the model's own, not made up.
        tolerance: What was allowed.
        products_gflops: Rate of large float32 matrix products measured meanwhile.
        layer_gflops: Rate of the products with the model's own matrices alone, by cell.
        results: By the mode's name.
        target: What the winner is best at, or None.
        winner: The mode chosen, or None.
    """

    machine: dict[str, Any]
    archive: str
    compared: int
    samples: bool
    tolerance: dict[str, Any]
    products_gflops: float = 0.0
    layer_gflops: dict[str, float] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    target: str | None = None
    winner: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        plain = {name: getattr(self, name) for name in Report.__slots__ if name != "results"}
        results = {name: result.as_dict() for name, result in self.results.items()}
        tolerance = {name: _finite(value) for name, value in self.tolerance.items()}
        return {**plain, "tolerance": tolerance, "results": results}

    def render(self) -> str:
        """Returns the table, a line for each cell of a mode, then one for each that failed."""
        lines = [line for name in self.results for line in self._lines(name)]
        widths = [max(map(len, column)) for column in zip(_HEAD, *lines, strict=True)]
        table = ["  ".join(_padded(line, widths)).rstrip() for line in (_HEAD, *lines)]
        notes = [
            f"{name}: {result.state}: {result.reason}"
            for name, result in self.results.items()
            if result.state != "ok"
        ]
        return "\n".join([*table, "", self._about(), *notes])

    def _about(self) -> str:
        kind = "of the samples" if self.samples else "of random tokens"
        own = ", ".join(f"{rate:.0f} at {cell}" for cell, rate in self.layer_gflops.items())
        return (
            f"compared with eager float32 on {self.compared} rows {kind};"
            f" {self.machine['threads']} threads;"
            f" matrix products at {self.products_gflops:.0f} GFLOP/s"
            + (f", with the model's own matrices {own}" if own else "")
        )

    def _lines(self, name: str) -> list[list[str]]:
        result = self.results[name]
        accuracy = result.accuracy
        whole = [
            _number(result.load_s, ".2f"),
            _number(result.memory_mb, ".0f"),
            _number(result.archive_mb, ".1f"),
            _number(accuracy.largest if accuracy else None, ".1e"),
            _number(accuracy.agreement if accuracy else None, ".1%"),
        ]
        mark = "*" if name == self.winner else _MARKS[result.state]
        cells = [(cell, *_times(timing)) for cell, timing in result.timings.items()]
        first, *more = cells or [("-",) * 5]
        lines = [[f"{name} {mark}".strip(), *first, *whole]]
        return lines + [["", *cell, *[""] * len(whole)] for cell in more]


_HEAD = ["mode", "batch", "p50 ms", "p95 ms", "p99 ms", "rows/s"]
_HEAD += ["load s", "memory MB", "archive MB", "max diff", "top-1"]
_MARKS: dict[State, str] = {"ok": "", "outside tolerance": "FAILED", "cannot run": "-"}


def _times(timing: Timing) -> tuple[str, ...]:
    percentiles = (_short(timing.percentile_ms(percent)) for percent in (50, 95, 99))
    return (*percentiles, _short(timing.rows_per_s))


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return "infinite" if isinstance(value, float) and math.isinf(value) else value


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _padded(line: list[str], widths: list[int]) -> list[str]:
    first, *rest = zip(line, widths, strict=True)
    return [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]
