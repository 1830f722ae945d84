"""How near a mode comes to eager float32: differences of logits, and the share of equal answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from safetensors.numpy import load_file

from marserve.handlers.optimize.candidates import Numbers

_LARGEST: Mapping[Numbers, float] = {
    "float32": 1e-3,
    "bfloat16": 0.2,
    "float16": 2e-2,
    "int8": math.inf,  # what counts is that the answers are the same
}
AGREEMENT = 0.99


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a mode may be from eager float32.

    Args:
        largest: Largest absolute difference of a logit, for all modes; None for what fits the
            kind of numbers.
        agreement: Least share of answers whose largest logit is the same one.
    """

    largest: float | None = None
    agreement: float = AGREEMENT

    def largest_for(self, numbers: Numbers) -> float:
        """Returns the largest difference for a kind of numbers."""
        return _LARGEST[numbers] if self.largest is None else self.largest


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The differences over all compared outputs.

    Args:
        largest: The largest absolute difference; infinite where something is no number.
        agreement: Share of rows, or of tokens, whose largest output is the same one.
    """

    largest: float
    agreement: float

    def problem(self, tolerance: Tolerance, numbers: Numbers) -> str | None:
        """Returns what is outside the tolerance, or None."""
        most = tolerance.largest_for(numbers)
        if not self.largest <= most:
            return f"differs by {self.largest:.2g}, allowed is {most:g}"
        if self.agreement < tolerance.agreement:
            return f"agrees in {self.agreement:.1%}, needed is {tolerance.agreement:.1%}"
        return None


def compare(expected: Path, actual: Path) -> Accuracy:
    """Compares two files of outputs, as ``trial.Trial.outputs`` writes them."""
    right, found = load_file(expected), load_file(actual)
    largest, same = 0.0, []
    for name, values in right.items():
        if name.startswith("top|"):
            same.append(values == found[name])
        else:
            largest = max(largest, _difference(values, found[name]))
    return Accuracy(largest, float(numpy.concatenate(same).mean()))


def _difference(one: Any, two: Any) -> float:
    difference = float(numpy.abs(one - two).max())
    return difference if math.isfinite(difference) else math.inf
