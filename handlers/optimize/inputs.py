"""What modes are measured on: a grid of batches and lengths, and the model's own samples."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.rows import read_value
from marserve.handlers.runners.base import Inputs, probe
from marserve.handlers.transformer import TransformerHandler

ACCURACY = "accuracy"
"""Names of the batches whose outputs are compared begin so; they are not timed."""

_SEED = 20
_ROWS_A_BATCH = 16
_SYNTHETIC_ROWS = 64
_FEWEST_REAL_ROWS = 8  # fewer say nothing of how lengths are spread
_LOG_MEDIAN, _LOG_SPREAD, _LONGEST = 3.2, 0.7, 128  # most texts have 12 to 50 tokens


@dataclass(frozen=True, slots=True)
class Cell:
    """A shape of input to time.

    Args:
        rows: Of the batch.
        tokens: Of each row; None for the lengths that the samples have.
    """

    rows: int
    tokens: int | None

    @property
    def name(self) -> str:
        """As it stands in the table."""
        return f"{self.rows}x{'real' if self.tokens is None else self.tokens}"


def build_inputs(
    handler: TransformerHandler, bodies: list[Any] | None, cells: Sequence[Cell]
) -> dict[str, Inputs]:
    """Returns batches by name: one a cell that the model can take, and those to compare on.

    Args:
        handler: Loaded; knows the task and the tokenizer.
        bodies: Request bodies, or None for rows of seeded noise.
        cells: Shapes wanted; ones longer than the model takes are left out.

    Raises:
        HandlerLoadError: If the task generates text, or cannot read a body.
    """
    task = handler.task
    if task.decodes or "decoder_input_ids" in handler.runner.input_names:
        raise HandlerLoadError(
            "a model that generates its answer piece by piece cannot be measured yet; modes are"
            " compared on models that answer at once"
        )
    batches = [] if bodies is None else _sample_batches(handler, bodies)
    if "input_ids" not in handler.runner.input_names:
        return _media(handler, batches, cells)
    return _Texts(handler, batches).build(cells)


class _Texts:
    """Rows of token ids."""

    def __init__(self, handler: TransformerHandler, batches: list[Inputs]) -> None:
        self._random = random.Random(_SEED)
        self._names = handler.runner.input_names
        self._longest: int = handler.task.settings.max_length
        self._tokenizer: Any = handler.tokenizer
        self._real = [row for batch in batches for row in _rows(batch)]
        self._batches = batches or self._synthetic_batches()
        every = self._real or [row for batch in self._batches for row in _rows(batch)]
        inner = [token for row in every for token in row[1:-1]] or every[0]
        self._ends = every[0][0], every[0][-1]
        self._inner = itertools.cycle(inner)

    def build(self, cells: Sequence[Cell]) -> dict[str, Inputs]:
        """Returns all batches by name."""
        found = {
            cell.name: self._pad(self._cell_rows(cell))
            for cell in cells
            if cell.tokens is None or cell.tokens <= self._longest
        }
        compared = {f"{ACCURACY}{at}": batch for at, batch in enumerate(self._batches)}
        return {**found, **compared}

    def _cell_rows(self, cell: Cell) -> list[list[int]]:
        if cell.tokens is not None:
            return [self._row(cell.tokens) for _ in range(cell.rows)]
        if len(self._real) >= _FEWEST_REAL_ROWS:
            return [self._real[at % len(self._real)] for at in range(cell.rows)]
        return [self._row(tokens) for tokens in self._lengths(cell.rows)]

    def _row(self, tokens: int) -> list[int]:
        inner = itertools.islice(self._inner, max(tokens - 2, 0))
        return [self._ends[0], *inner, self._ends[1]][:tokens]

    def _lengths(self, rows: int) -> list[int]:
        """Lengths at even steps through their distribution: drawn ones would depend on luck."""
        spread = NormalDist(_LOG_MEDIAN, _LOG_SPREAD)
        shares = ((row + 0.5) / rows for row in range(rows))
        longest = min(_LONGEST, self._longest)
        lengths = [min(round(math.exp(spread.inv_cdf(share))), longest) for share in shares]
        self._random.shuffle(lengths)
        return [max(tokens, min(4, self._longest)) for tokens in lengths]

    def _synthetic_batches(self) -> list[Inputs]:
        special = {*self._tokenizer.all_special_ids}
        words = [token for token in range(len(self._tokenizer)) if token not in special]
        first = _first_id(self._tokenizer, ("cls_token_id", "bos_token_id"), words)
        last = _first_id(self._tokenizer, ("sep_token_id", "eos_token_id"), words)
        rows = [
            [first, *self._random.choices(words, k=max(tokens - 2, 1)), last]
            for tokens in self._lengths(_SYNTHETIC_ROWS)
        ]
        return [self._pad(part) for part in _parts(rows)]

    def _pad(self, rows: list[list[int]]) -> Inputs:
        longest = max(map(len, rows))
        pad: int = self._tokenizer.pad_token_id or 0
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        return {name: known[name] for name in self._names}


def _media(
    handler: TransformerHandler, batches: list[Inputs], cells: Sequence[Cell]
) -> dict[str, Inputs]:
    """Images and sound have one size, so a cell is only so many of them."""
    generator = torch.Generator().manual_seed(_SEED)
    config: Any = handler.task.settings.config
    found: dict[str, Inputs] = {}
    for rows in dict.fromkeys(cell.rows for cell in cells):
        inputs = probe(rows, _ROWS_A_BATCH, handler.runner, config)
        for name, values in inputs.items():
            if values.is_floating_point():
                inputs[name] = torch.randn(values.shape, generator=generator)
        found[str(rows)] = inputs
    compared = batches or [*found.values()]
    return {**found, **{f"{ACCURACY}{at}": batch for at, batch in enumerate(compared)}}


def _sample_batches(handler: TransformerHandler, bodies: list[Any]) -> list[Inputs]:
    try:
        items = [handler.task.parse(read_value({"body": body})) for body in bodies]
    except RequestError as error:
        raise HandlerLoadError(f"--sample: {error.message}") from error
    return [dict(handler.task.encode(part).inputs) for part in _parts(items)]


def _parts(items: list[Any]) -> list[list[Any]]:
    return [items[at : at + _ROWS_A_BATCH] for at in range(0, len(items), _ROWS_A_BATCH)]


def _rows(batch: Inputs) -> list[list[int]]:
    masks = batch["attention_mask"].bool()
    return [ids[mask].tolist() for ids, mask in zip(batch["input_ids"], masks, strict=True)]


def _first_id(tokenizer: Any, names: Sequence[str], words: list[int]) -> int:
    found = (getattr(tokenizer, name, None) for name in names)
    return next((token for token in found if token is not None), words[0])
