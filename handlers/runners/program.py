"""Programs: models that were made into a file of their own before, and run as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.execution import SUFFIXES
from marserve.archiver.handler_options import SaveMode
from marserve.handlers.pretrained import context_length
from marserve.handlers.runners.base import (
    INPUT_NAMES,
    Decoder,
    Inputs,
    Outputs,
    RunnerOptions,
    probe,
)
from marserve.handlers.runners.decoding import RecomputingDecoder

# The first runs choose kernels, and TorchScript's first two specialise; other shapes must do too.
_WARM_UP_SHAPES = ((1, 8), (1, 8), (2, 16), (3, 24))


class Program(Protocol):
    """What an engine made of a file: named tensors in, tensors out."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """Some of ``INPUT_NAMES``, as the file has them."""
        ...

    def __call__(self, inputs: Inputs) -> Mapping[str, Tensor] | Sequence[Tensor]:
        """Runs one padded batch: ``[rows, tokens] int64`` each, and just the program's inputs.

        Returns:
            The outputs in the model's order, with their names if they have any.
        """
        ...


class ProgramRunner:
    """Runs a program; it has no weights that anything could be attributed to.

    Args:
        program: Runs one batch.
        options: The task's names of the outputs, and what the model is.
        device: Where its inputs must be.
    """

    module = None

    def __init__(self, program: Program, options: RunnerOptions, device: torch.device) -> None:
        self._program = program
        self._output_names = options.output_names
        self._device = device
        self._input_names = program.input_names
        self._longest = context_length(options.config)
        self._file = options.weights_file

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that the program takes."""
        return self._input_names

    @property
    def device(self) -> torch.device:
        """Where the inputs must be."""
        return self._device

    @torch.inference_mode()
    def __call__(self, inputs: Inputs) -> Outputs:
        """Runs one padded batch."""
        outputs = self._program({name: inputs[name] for name in self._input_names})
        if isinstance(outputs, Mapping):
            if all(name in outputs for name in self._output_names):
                return {name: outputs[name] for name in self._output_names}
            outputs = tuple(outputs.values())  # other exporters have names of their own
        return dict(zip(self._output_names, outputs, strict=False))

    def decoder(self) -> Decoder:
        """Returns a decoder that runs the whole text at each step: a program has no cache."""
        return RecomputingDecoder(self)

    def warm_up(self) -> None:
        """Runs a few shapes, and so finds out whether any length and batch size will do.

        Raises:
            HandlerLoadError: If the program was made for one shape only, or for something else.
        """
        for rows, tokens in _WARM_UP_SHAPES:
            length = min(tokens, self._longest or tokens)
            try:
                outputs = self(probe(rows, length, self))
                if missing := [name for name in self._output_names if name not in outputs]:
                    raise KeyError(f"no output {', '.join(missing)}")
            except Exception as error:  # each engine raises what it likes
                self._refuse(rows, length, error)

    def _refuse(self, rows: int, tokens: int, error: Exception) -> NoReturn:
        reason = "".join(str(error).strip().splitlines()[-1:])[:300]
        raise HandlerLoadError(
            f"{self._file}: does not take {rows} rows of {tokens} tokens ({reason}); make it anew"
            " with archive-model export, which lets it take any number, or so that its inputs are"
            f" {', '.join(INPUT_NAMES)}, in that order, and its outputs"
            f" {', '.join(self._output_names)}"
        ) from error


def program_file(options: RunnerOptions, source: SaveMode) -> Path:
    """Returns the archive's serialized file.

    Raises:
        HandlerLoadError: If there is none.
    """
    name = options.weights_file
    if name is None or not (options.directory / name).is_file():
        raise HandlerLoadError(
            f"save_mode: {source} needs a serialized file, *{' or *'.join(SUFFIXES[source])}; make"
            " one with archive-model export, or pack it with --serialized-file"
        )
    return options.directory / name


def known_names(found: Sequence[str], file: str, *, named: bool = True) -> tuple[str, ...]:
    """Returns the names of a program's inputs.

    Args:
        found: As the file has them.
        file: What to call it in messages.
        named: Whether the names must be known ones; if not, other names count by their order.

    Raises:
        HandlerLoadError: If there is an input that no task has.
    """
    if found and all(name in INPUT_NAMES for name in found):
        return tuple(found)
    if not named and 1 <= len(found) <= len(INPUT_NAMES):
        return INPUT_NAMES[: len(found)]
    raise HandlerLoadError(
        f"{file}: takes {len(found)} inputs ({', '.join(found[:6])}); expected some of"
        f" {', '.join(INPUT_NAMES)}"
    )


def check_quantization(found: str | None, options: RunnerOptions) -> None:
    """Compares what a file says of its numbers with what was asked for.

    Args:
        found: What ``archive-model export`` wrote into the file; None for nothing.
        options: What was asked for; nothing is asked of a file without the key.

    Raises:
        HandlerLoadError: If it is something else.
    """
    if options.quantization not in (None, found):
        raise HandlerLoadError(
            f"model-config.yaml: $.handler.quantization: {options.quantization}, but"
            f" {options.weights_file} was not made so; make it anew with archive-model export"
            f" --quantization {options.quantization}, or remove the key"
        )
