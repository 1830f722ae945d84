"""Programs: models that were made into a file of their own before, and run as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.execution import SUFFIXES
from marserve.archiver.handler_options import SaveMode
from marserve.handlers.huge_pages import use_huge_pages
from marserve.handlers.pretrained import context_length
from marserve.handlers.runners.base import (
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
        """Names of its inputs, in the program's order."""
        ...

    def __call__(self, inputs: Inputs) -> Mapping[str, Tensor] | Sequence[Tensor]:
        """Runs one padded batch: just the program's inputs, in its order.

        Returns:
            The outputs in the model's order, with their names if they have any.
        """
        ...


class EngineProgram(Program, Protocol):
    """A program of an engine of its own, whose file says what its numbers are."""

    @property
    def quantization(self) -> str | None:
        """What the file says of its numbers; None if it says nothing."""
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
        self._options = options

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
        longest = context_length(self._options.config)
        for rows, tokens in _WARM_UP_SHAPES:
            length = min(tokens, longest or tokens)
            try:
                outputs = self(probe(rows, length, self, self._options.config))
                if missing := [name for name in self._output_names if name not in outputs]:
                    raise KeyError(f"no output {', '.join(missing)}")
            except Exception as error:  # each engine raises what it likes
                self._refuse(rows, length, error)

    def _refuse(self, rows: int, tokens: int, error: Exception) -> NoReturn:
        reason = "".join(str(error).strip().splitlines()[-1:])[:300]
        raise HandlerLoadError(
            f"{self._options.weights_file}: does not take {rows} rows of {tokens} tokens"
            f" ({reason}); make it anew with archive-model export, which lets it take any number,"
            f" or so that its inputs are some of {', '.join(self._options.input_names)}, in that"
            f" order, and its outputs {', '.join(self._output_names)}"
        ) from error


class EngineRunner(ProgramRunner):
    """Runs a program of an engine that keeps its weights in memory of its own."""

    def warm_up(self) -> None:
        """Runs a few shapes; after the first the weights are in the order that the engine wants.

        Raises:
            HandlerLoadError: If the program was made for one shape only, or for something else.
        """
        super().warm_up()
        if self._options.device.type == "cpu":
            use_huge_pages()


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


def open_program(
    source: SaveMode,
    kind: Callable[[Path, RunnerOptions], EngineProgram],
    options: RunnerOptions,
) -> EngineRunner:
    """Opens the archive's file with an engine that takes and gives tensors on the CPU.

    Raises:
        HandlerLoadError: If there is none, it is something else, or it has not the numbers that
            ``handler.quantization`` asks for.
    """
    program = kind(program_file(options, source), options)
    _check_quantization(program.quantization, options)
    return EngineRunner(program, options, torch.device("cpu"))


def known_names(
    found: Sequence[str], options: RunnerOptions, *, named: bool = True
) -> tuple[str, ...]:
    """Returns the names of a program's inputs.

    Args:
        found: As the file has them.
        options: Knows the names that the task has to offer.
        named: Whether the names must be known ones; if not, other names count by their order.

    Raises:
        HandlerLoadError: If there is an input that the task does not have.
    """
    known = options.input_names
    if found and all(name in known for name in found):
        return tuple(found)
    if not named and 1 <= len(found) <= len(known):
        return known[: len(found)]
    raise HandlerLoadError(
        f"{options.weights_file}: takes {len(found)} inputs ({', '.join(found[:6])}); expected some"
        f" of {', '.join(known)}"
    )


def _check_quantization(found: str | None, options: RunnerOptions) -> None:
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
