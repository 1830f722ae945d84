"""A model's own inputs, divided: what int8 measures its ranges on is not what modes are held to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from marserve.handlers.export.samples import read_samples

RANGES = 64
"""How many of the inputs ranges are measured on."""
COMPARED = 2000
"""How many inputs are compared at most."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Files of request bodies.

    Args:
        ranges: Those that are for measuring ranges; None for sentences of our own.
        compared: Those that modes are compared and timed on; None for random tokens.
    """

    ranges: Path | None = None
    compared: Path | None = None


def divide(path: Path | None, scratch: Path) -> Samples:
    """Divides the inputs in a file: the first are for ranges, the others are compared.

    With fewer than twice as many as ranges are measured on, all of them are for both.

    Args:
        path: A text a line, or JSON; None if there are no samples.
        scratch: Where the parts are written to.

    Raises:
        HandlerLoadError: If the file holds none.
    """
    if path is None:
        return Samples()
    bodies = read_samples(path)
    is_divided = len(bodies) >= 2 * RANGES
    parts = {
        "ranges": bodies[:RANGES],
        "compared": bodies[RANGES if is_divided else 0 :][:COMPARED],
    }
    files = {name: scratch / f"{name}.json" for name in parts}
    for name, part in parts.items():
        files[name].write_text(json.dumps(part))
    return Samples(**files)
