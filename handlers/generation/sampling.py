"""Which token comes next: greedy, or drawn from the likeliest ones; every row by its own rules."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from marserve.handlers.errors import RequestError
from marserve.handlers.rows import check_keys

_SEED_LIMIT = 2**63
_COLDEST = 1e-5  # below it drawing is picking the likeliest, and division would overflow


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one text is continued.

    Args:
        max_new_tokens: Most tokens to append.
        do_sample: Whether tokens are drawn; otherwise each is the likeliest.
        temperature: Divides the logits before drawing; 0 means the likeliest token.
        top_k: Draw from that many likeliest tokens; 0 for all.
        top_p: Draw from the likeliest tokens that together reach this probability.
        seed: Makes drawing repeatable, whatever else is in the batch; None for a new one each time.
    """

    max_new_tokens: int
    do_sample: bool = True
    temperature: float = 1.0
    top_k: int = 60
    top_p: float = 0.95
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn."""
        return not self.do_sample or self.temperature < _COLDEST or self.top_k == 1


PARAMETERS = tuple(item.name for item in fields(SamplingParams))
_RANGES: dict[str, tuple[type, float, float, str]] = {
    "max_new_tokens": (int, 1, 2**31 - 1, "a whole number of at least 1"),
    "temperature": (float, 0, 100, "a number from 0 to 100"),
    "top_k": (int, 0, 2**31 - 1, "a whole number, 0 for no limit"),
    "top_p": (float, 1e-6, 1, "a number above 0, up to 1"),
    "seed": (int, 0, _SEED_LIMIT - 1, f"a whole number from 0 to {_SEED_LIMIT - 1}"),
}


def read_params(values: Mapping[str, Any], default: SamplingParams) -> SamplingParams:
    """Returns the parameters that a mapping names, the others as in ``default``.

    Args:
        values: Names of ``PARAMETERS`` and their values; a null counts as absent.
        default: What holds where a value is absent.

    Raises:
        RequestError: If a name is not known or a value out of its range.
    """
    check_keys(values, PARAMETERS)
    given = {name: _check(name, value) for name, value in values.items() if value is not None}
    merged = {name: given.get(name, getattr(default, name)) for name in PARAMETERS}
    return SamplingParams(**merged)


def _check(name: str, value: Any) -> Any:
    if name == "do_sample":
        if not isinstance(value, bool):
            raise RequestError(f'"do_sample" is {value!r:.80}; expected true or false')
        return value
    kind, low, high, expected = _RANGES[name]
    accepted = (int, float) if kind is float else (int,)
    if isinstance(value, bool) or not isinstance(value, accepted) or not low <= value <= high:
        raise RequestError(f'"{name}" is {value!r:.80}; expected {expected}')
    return kind(value)


class Sampler:
    """Chooses tokens for the rows of a batch.

    Drawing needs one number a row and token, from the row's own generator, so that a seeded row
    gives the same text in every batch and on every device.

    Args:
        params: One a row.
    """

    def __init__(self, params: Sequence[SamplingParams]) -> None:
        self._params = params
        self._random = [random.Random(p.seed) for p in params]

    def pick(self, logits: Tensor, rows: Sequence[int]) -> Tensor:
        """Chooses a token for each of some rows.

        Args:
            logits: ``[picked, vocabulary]``.
            rows: Which row of the batch each line of the logits is.

        Returns:
            ``[picked] int64``.
        """
        best = logits.argmax(-1)
        drawn = [line for line, row in enumerate(rows) if not self._params[row].greedy]
        if drawn:
            lines = torch.tensor(drawn, device=logits.device)
            best[lines] = self._draw(logits[lines].float(), [rows[line] for line in drawn])
        return best

    def _draw(self, logits: Tensor, rows: list[int]) -> Tensor:
        params = [self._params[row] for row in rows]
        vocabulary = logits.shape[1]
        limits = [min(p.top_k or vocabulary, vocabulary) for p in params]
        column = _columns(logits)
        best = logits.amax(1, keepdim=True)
        scaled = (logits - best) / column([p.temperature for p in params])
        values, ids = scaled.topk(max(limits), dim=1)  # likeliest first
        rank = torch.arange(values.shape[1], device=logits.device)
        chances = values.masked_fill(rank >= column(limits), -torch.inf).softmax(1)
        before = chances.cumsum(1) - chances
        chances = chances.masked_fill(before >= column([p.top_p for p in params]), 0.0)
        chances[:, 0] = chances[:, 0].clamp(min=torch.finfo(chances.dtype).tiny)
        reached = chances.cumsum(1)
        threshold = column([self._random[row].random() for row in rows]) * reached[:, -1:]
        choice = (reached <= threshold).sum(1, keepdim=True)
        last = ((chances > 0).sum(1, keepdim=True) - 1).clamp(min=0)
        picked: Tensor = ids.gather(1, choice.minimum(last))[:, 0]
        return picked


def _columns(like: Tensor) -> Any:
    return lambda values: torch.tensor(values, device=like.device)[:, None]
