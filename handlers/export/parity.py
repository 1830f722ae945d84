"""How near an exported program comes to the eager model, measured on the same inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from marserve.handlers.runners.base import Inputs, Runner

TOLERANCES = {
    "torch.float32": 1e-3,
    "torch.float16": 2e-2,
    "torch.bfloat16": 1e-1,
    "int8": 3e-1,
}
"""Largest relative difference by the kind of numbers; a broken program is near 1 or beyond."""


@dataclass(frozen=True, slots=True)
class Parity:
    """The differences over all outputs.

    Args:
        largest: The largest absolute difference.
        relative: Norm of the differences, as a share of the norm of the eager outputs.
        agreement: Share of rows, or of tokens, whose largest output is the same one.
        batches: How many batches were compared.
    """

    largest: float
    relative: float
    agreement: float
    batches: int

    def __str__(self) -> str:
        return (
            f"largest difference {self.largest:.2g}, relative {self.relative:.2g},"
            f" same answer for {self.agreement:.1%} (over {self.batches} batches)"
        )


def compare(eager: Runner, other: Runner, batches: Iterable[Inputs], per_token: bool) -> Parity:
    """Runs both on the same batches.

    Args:
        eager: What is right.
        other: What is compared with it.
        batches: Padded inputs, with at least what ``other`` takes.
        per_token: Whether outputs have values for every token; those of padding do not count.
    """
    expected: list[Tensor] = []
    actual: list[Tensor] = []
    same: list[Tensor] = []
    count = 0
    for inputs in batches:
        count += 1
        right, found = _run(eager, inputs), _run(other, inputs)
        mask = inputs["attention_mask"].bool() if per_token else ...
        for name, values in right.items():
            one, two = values[mask].float().cpu(), found[name][mask].float().cpu()
            same.append((one.argmax(-1) == two.argmax(-1)).flatten())
            expected.append(one.flatten())
            actual.append(two.flatten())
    reference = torch.cat(expected)
    difference = torch.cat(actual) - reference
    return Parity(
        largest=_number(difference.abs().max()),
        relative=_number(difference.norm() / reference.norm().clamp(min=1e-12)),
        agreement=torch.cat(same).float().mean().item(),
        batches=count,
    )


def _run(runner: Runner, inputs: Inputs) -> dict[str, Tensor]:
    return runner(
        {name: inputs[name].to(runner.device) for name in runner.input_names if name in inputs}
    )


def _number(value: Tensor) -> float:
    """Outputs that are no numbers are as far away as can be."""
    return value.nan_to_num(nan=torch.inf).item()
