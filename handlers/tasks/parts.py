"""Batches whose items are many rows each: run in parts, so that memory has a bound."""

from __future__ import annotations

import torch

from marserve.handlers.runners.base import Outputs, Runner
from marserve.handlers.tokens import TokenBatch

ROWS = 64


def run_in_parts(runner: Runner, batch: TokenBatch, rows: int = ROWS) -> Outputs:
    """Runs a batch of any number of rows.

    Args:
        runner: Runs a part.
        batch: All rows, padded alike.
        rows: Most rows of a part.
    """
    inputs = batch.to(runner.device).inputs
    if len(batch) <= rows:
        return runner(inputs)
    parts = [
        runner({name: values[at : at + rows] for name, values in inputs.items()})
        for at in range(0, len(batch), rows)
    ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
