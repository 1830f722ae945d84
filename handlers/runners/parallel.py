"""Eager PyTorch in several processes that share one model: ``model_parallel: true``.

Rank 0 alone knows requests and tasks. Whatever it computes it first tells the others, which do the
same with their part of the model, so that all of them meet in every sum and every hand-over.
"""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from marserve.handlers.parallel.commands import Command, hear, tell
from marserve.handlers.parallel.grid import Grid, find_place
from marserve.handlers.parallel.model import load_part
from marserve.handlers.runners.base import Decoder, Inputs, Outputs, RunnerOptions, probe
from marserve.handlers.runners.decoding import exercise
from marserve.handlers.runners.eager import EagerRunner

T = TypeVar("T")


class ParallelRunner:
    """Runs a model of which this process, rank 0, has a part.

    Args:
        part: Runs that part.
        grid: This rank and the others.
        options: Which model it is.
    """

    module = None  # nobody has the whole of it

    def __init__(self, part: EagerRunner, grid: Grid, options: RunnerOptions) -> None:
        self._part = part
        self._grid = grid
        self._options = options
        self._numbers = itertools.count(1)
        self._forgotten: list[int] = []

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that the model takes."""
        return self._part.input_names

    @property
    def device(self) -> torch.device:
        """Where the inputs must be."""
        return self._part.device

    def __call__(self, inputs: Inputs) -> Outputs:
        """Runs one padded batch."""
        return self.together(Command("run", inputs), lambda: self._part(inputs))

    def decoder(self) -> Decoder:
        """Returns a decoder; every rank keeps the keys and values of its part."""
        return _ParallelDecoder(self, self._part.decoder(), next(self._numbers))

    def warm_up(self) -> None:
        """Runs once, so that memory is mapped and the ranks have connected."""
        if self._grid.place.rank:
            return
        config = self._options.config
        if self._options.decodes:
            exercise(self.decoder, lambda rows, tokens: probe(rows, tokens, self, config))
        else:
            self(probe(1, 8, self, config))

    def together(self, command: Command, run: Callable[[], T]) -> T:
        """Tells the others a command and does the same here."""
        forget, self._forgotten = tuple(self._forgotten), []
        with _fatal():
            tell(command._replace(forget=forget), self._grid.control)
            return run()

    def forget(self, decoder: int) -> None:
        """Lets the others drop a decoder, with the next command."""
        self._forgotten.append(decoder)

    def end(self) -> None:
        """Lets the others return from ``follow``."""
        self.together(Command("end", {}), lambda: None)

    def follow(self) -> None:
        """What this process does if it is not rank 0; returns when rank 0 says so, or is gone."""
        decoders: dict[int, Decoder] = {}
        while True:
            try:
                command = hear(self._grid.control, self.device)
            except RuntimeError:
                return  # rank 0 has ended, and with it this model
            if command.word == "end":
                return
            with _fatal():
                self._obey(command, decoders)

    def _obey(self, command: Command, decoders: dict[int, Decoder]) -> None:
        for number in command.forget:
            decoders.pop(number, None)
        tensors, number = command.tensors, command.decoder
        if command.word == "run":
            self._part(tensors)
        elif command.word == "start":
            decoders[number] = self._part.decoder()
            decoders[number].start(tensors)
        elif command.word == "step":
            decoders[number].step(tensors["tokens"])
        elif command.word == "keep":
            decoders[number].keep(tensors["rows"])


class _ParallelDecoder:
    """A decoder in every rank."""

    def __init__(self, runner: ParallelRunner, own: Decoder, number: int) -> None:
        self._runner = runner
        self._own = own
        self._number = number

    def start(self, inputs: Inputs) -> Tensor:
        """Returns the logits after the prompts."""
        return self._together("start", inputs, lambda: self._own.start(inputs))

    def step(self, tokens: Tensor) -> Tensor:
        """Appends one token a row; returns the logits after it."""
        return self._together("step", {"tokens": tokens}, lambda: self._own.step(tokens))

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self._together("keep", {"rows": rows}, lambda: self._own.keep(rows))

    def _together(self, word: str, tensors: dict[str, Tensor], run: Callable[[], T]) -> T:
        return self._runner.together(Command(word, tensors, self._number), run)

    def __del__(self) -> None:
        self._runner.forget(self._number)


class _fatal:  # reads like the statement that it is
    """Ends the process on any error: ranks that no longer keep step would compute nonsense."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        if kind is not None:
            traceback.print_exception(kind, error, trace)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


def load(options: RunnerOptions) -> ParallelRunner:
    """Joins the other ranks and loads this one's part of the archive's weights.

    Raises:
        HandlerLoadError: If the model cannot be divided so, or the others do not come.
    """
    place = find_place(options.parallel or "tp", options.ranks)
    grid = Grid(place, options.device)
    module = load_part(options, grid)

    def forward(**inputs: Any) -> dict[str, Tensor]:
        outputs = module(**inputs)
        return {name: grid.to_first(outputs[name]) for name in options.output_names}

    part = EagerRunner(module, options.output_names, forward, options.decodes, options.input_names)
    return ParallelRunner(part, grid, options)
