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
"""What models of text take, by name; a task of something else names its own."""

_SAMPLES_A_TOKEN = 400  # a probe of sound must be longer than the model's first convolutions


class Decoder(Protocol):
    """Next-token logits of some rows that grow token by token."""

    def start(self, inputs: Inputs) -> Tensor:
        """Returns the logits after the prompts: ``[rows, vocabulary]``; the prompts are padded.

        Where the model has an encoder, the prompts are ``decoder_input_ids``, without padding, and
        the other inputs are the encoder's.
        """
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
        """Names of the inputs that the model takes, the main one first."""
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
        """Runs one padded batch; outputs have the rows' order.

        Args:
            inputs: Of text ``[rows, tokens] int64`` each; of images ``pixel_values: [rows,
                channels, height, width] float32``; of sound ``input_values: [rows, samples]
                float32``, or ``input_features: [rows, features, frames] float32``.
        """
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
        compile_cache: Directory where compiled code is kept, from the archive's; None for
            PyTorch's own.
        compile_in_background: Whether the model answers eagerly until it is compiled.
        transforms: Keys of ``TRANSFORMS``, the innermost first.
        quantization: Numbers of fewer bits, by the name they have in model-config.yaml, or None.
        parallel: How processes share the model, ``tp``, ``pp`` or ``pptp``; None for one alone.
        ranks: How many processes share it.
        per_token: Whether the outputs have values for every token, not for the row alone.
        decodes: Whether text is generated, by ``decoder``.
        input_names: Names of the inputs that the task has to offer.
        spare_weights: Beginnings of names of weights that the task does without.
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
    input_names: tuple[str, ...] = INPUT_NAMES
    spare_weights: tuple[str, ...] = ()
    compile_cache: str | None = None
    compile_in_background: bool = False


def probe(rows: int, tokens: int, runner: Runner, config: Any = None) -> Inputs:
    """Returns inputs of a shape, for warming up; id 0 is in every vocabulary.

    Args:
        rows: Rows of the batch.
        tokens: Tokens a row, where the inputs are text; sound gets as many parts.
        runner: Says which inputs, and where they must be.
        config: The model's transformers config, which knows how large images are; None for that
            of the runner's module.
    """
    config = getattr(runner.module, "config", None) if config is None else config
    names = runner.input_names
    columns = tokens * _SAMPLES_A_TOKEN if "input_values" in names else tokens
    inputs: Inputs = {}
    for name in names:
        shape = _media_shape(name, rows, config)
        if shape is not None:
            inputs[name] = torch.zeros(shape, device=runner.device)
        elif name == "input_values":
            inputs[name] = torch.zeros((rows, columns), device=runner.device)
        else:
            width = 1 if name == "decoder_input_ids" else columns
            fill = 1 if name == "attention_mask" else 0
            inputs[name] = torch.full((rows, width), fill, device=runner.device)
    return inputs


def _media_shape(name: str, rows: int, config: Any) -> tuple[int, ...] | None:
    if name == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        return rows, getattr(config, "num_channels", 3), height, width
    if name == "input_features":
        return rows, config.num_mel_bins, 2 * config.max_source_positions
    return None


def padded_probe(module: nn.Module, lengths: tuple[int, ...]) -> Inputs:
    """Returns a padded batch of a model of text, the same each time.

    Args:
        module: A transformers model; its vocabulary and padding count.
        lengths: Tokens of each row.

    Returns:
        ``input_ids`` and ``attention_mask``, ``[rows, tokens] int64``, where the model is.
    """
    config: Any = module.config
    mask = (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).long()
    ids = 1 + torch.arange(mask.numel()).view(mask.shape) * 7919 % (config.vocab_size - 1)
    padding = config.pad_token_id or 0
    ids = torch.where(ids == padding, ids % (config.vocab_size - 1) + 1, ids)
    device = next(module.parameters()).device
    ids = torch.where(mask.bool(), ids, padding)
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
