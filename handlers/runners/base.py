"""What every mode of execution offers to the tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

Inputs = dict[str, Tensor]
Outputs = dict[str, Tensor]

INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")


class Decoder(Protocol):
    """Next-token logits of some rows that grow token by token."""

    def start(self, inputs: Inputs) -> Tensor:
        """Returns the logits after the prompts: ``[rows, vocabulary]``; the prompts are padded."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Appends ``tokens: [rows] int64``; returns the logits after them."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but ``rows: [kept] int64``, whose answers are not complete yet."""
        ...


class Runner(Protocol):
    """A loaded model that maps named tensors to named tensors.

    It never sees labels or text. ``module`` is the eager model with its weights, or None where a
    mode has none; explanations need its gradients.
    """

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that the model takes, the ids first."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the inputs must be."""
        ...

    @property
    def module(self) -> nn.Module | None:
        """The eager model, or None."""
        ...

    def __call__(self, inputs: Inputs) -> Outputs:
        """Runs one padded batch: ``[rows, tokens] int64`` each; outputs have the rows' order."""
        ...

    def decoder(self) -> Decoder:
        """Returns a new decoder for text generation."""
        ...

    def warm_up(self) -> None:
        """Does before the first request whatever would make that request slow."""
        ...


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """Which model to load, and how.

    Args:
        directory: The unpacked archive.
        auto_class: Name of the transformers class that loads the task's model.
        output_names: Names of the outputs, in the model's order.
        device: Where it runs.
        config: The model's transformers config, or None if the archive has none.
        weights_file: The archive's serialized file, or None.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto`` for the checkpoint's own.
        attn_implementation: A name that transformers knows, or None for its choice (SDPA).
        compile_options: Arguments of ``torch.compile``.
        transforms: Keys of ``TRANSFORMS``, the innermost first.
        quantization: Numbers of fewer bits, by the name they have in model-config.yaml, or None.
        parallel: How processes share the model, ``tp``, ``pp`` or ``pptp``; None for one alone.
        ranks: How many processes share it.
        per_token: Whether the outputs have values for every token, not for the row alone.
        decodes: Whether text is generated, by ``decoder``.
    """

    directory: Path
    auto_class: str
    output_names: tuple[str, ...]
    device: torch.device
    config: Any = None
    weights_file: str | None = None
    dtype: str = "auto"
    attn_implementation: str | None = None
    compile_options: dict[str, Any] = field(default_factory=dict)
    transforms: tuple[str, ...] = ()
    quantization: str | None = None
    parallel: str | None = None
    ranks: int = 1
    per_token: bool = False
    decodes: bool = False


def probe(rows: int, tokens: int, runner: Runner) -> Inputs:
    """Returns inputs of a shape, for warming up; id 0 is in every vocabulary."""
    fill = {"input_ids": 0, "attention_mask": 1, "token_type_ids": 0}
    return {
        name: torch.full((rows, tokens), fill[name], device=runner.device)
        for name in runner.input_names
    }
