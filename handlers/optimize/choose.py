"""Which mode is best at what the user wants, among those within the tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable

from marserve.handlers.optimize.candidates import BASELINE
from marserve.handlers.optimize.command import Target
from marserve.handlers.optimize.report import Report, Result

_ALIKE = 0.05  # differences below this are noise; then the next measure decides


def choose(report: Report, target: Target) -> str:
    """Returns the name of the mode that is best at ``target``; eager is always one of them.

    Speeds are geometric means of the ratios to eager, over the cells of one row for latency, and
    over those of several for throughput.
    """
    eager = report.results[BASELINE]
    measures: dict[Target, Callable[[Result], float]] = {
        "latency": lambda result: _speed(result, eager, single=True),
        "throughput": lambda result: _speed(result, eager, single=False),
        "memory": lambda result: (eager.memory_mb or 1.0) / (result.memory_mb or math.inf),
    }
    left = {name: result for name, result in report.results.items() if result.state == "ok"}
    for name in sorted(measures, key=lambda name: name != target):
        scores = {mode: measures[name](result) for mode, result in left.items()}
        best = max(scores.values())
        left = {mode: left[mode] for mode in left if scores[mode] >= best * (1 - _ALIKE)}
    return BASELINE if BASELINE in left else next(iter(left))


def _speed(result: Result, eager: Result, single: bool) -> float:
    chosen = [cell for cell, timing in eager.timings.items() if (timing.rows == 1) == single]
    ratios = [
        result.timings[cell].rows_per_s / eager.timings[cell].rows_per_s
        for cell in chosen or eager.timings
    ]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
