"""Decoders: next-token logits, from cached keys and values or from the whole text anew."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from marserve.handlers.runners.base import Decoder, Inputs, Runner


class CachedDecoder:
    """Keeps keys and values of past tokens, so that a step costs one token.

    Prompts are padded on the left, so that the newest token is the last column for every row.

    Args:
        module: A transformers model for causal language modelling.
        forward: What is called; ``module`` or its compiled form.
    """

    def __init__(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        parameters = inspect.signature(module.forward).parameters
        self._forward = forward
        self._positions = "position_ids" in parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._cache: Any = None
        self._mask = torch.empty(0)

    @torch.inference_mode()
    def start(self, inputs: Inputs) -> Tensor:
        """Returns the logits after the prompts: ``[rows, vocabulary]``."""
        from transformers import DynamicCache

        ids, mask = to_left(inputs["input_ids"], inputs["attention_mask"])
        self._cache, self._mask = DynamicCache(), mask
        return self._run(ids, positions(mask))

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Tensor:
        """Appends one token a row; returns the logits after it."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        return self._run(tokens[:, None], self._mask.sum(1, keepdim=True) - 1)

    @torch.inference_mode()
    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self._cache.batch_select_indices(rows)
        self._mask = self._mask[rows]

    def _run(self, ids: Tensor, at: Tensor) -> Tensor:
        extra: dict[str, Any] = {"position_ids": at} if self._positions else {}
        outputs = self._forward(
            input_ids=ids,
            attention_mask=self._mask,
            past_key_values=self._cache,
            use_cache=True,
            **extra,
            **self._last_only,
        )
        logits: Tensor = outputs["logits"][:, -1]
        return logits


class EncodedDecoder:
    """The decoder of a model with an encoder, which reads its inputs once; keys and values kept.

    Args:
        module: A transformers model with an encoder and a decoder.
        forward: What is called; ``module`` or its compiled form.
    """

    def __init__(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        self._module: Any = module
        self._forward = forward
        self._cache: Any = None
        self._fixed: dict[str, Any] = {}

    @torch.inference_mode()
    def start(self, inputs: Inputs) -> Tensor:
        """Returns the logits after the decoder's prompts: ``[rows, vocabulary]``."""
        from transformers import DynamicCache, EncoderDecoderCache

        inputs = dict(inputs)
        prompts = inputs.pop("decoder_input_ids")
        self._fixed = {"encoder_outputs": self._module.get_encoder()(**inputs)}
        if "attention_mask" in inputs:
            self._fixed["attention_mask"] = inputs["attention_mask"]
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        return self._run(prompts)

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Tensor:
        """Appends one token a row; returns the logits after it."""
        return self._run(tokens[:, None])

    @torch.inference_mode()
    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self._cache.batch_select_indices(rows)
        encoded = self._fixed["encoder_outputs"]
        kept = {"encoder_outputs": type(encoded)(last_hidden_state=encoded.last_hidden_state[rows])}
        if "attention_mask" in self._fixed:
            kept["attention_mask"] = self._fixed["attention_mask"][rows]
        self._fixed = kept

    def _run(self, ids: Tensor) -> Tensor:
        outputs = self._forward(
            decoder_input_ids=ids, past_key_values=self._cache, use_cache=True, **self._fixed
        )
        logits: Tensor = outputs["logits"][:, -1]
        return logits


class RecomputingDecoder:
    """Runs the whole text at every step: for modes whose model has no cache.

    Rows are padded on the right, so that positions need no input of their own.

    Args:
        runner: Maps ids and mask to ``logits: [rows, tokens, vocabulary]``.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._ids = torch.empty(0)
        self._lengths = torch.empty(0)

    def start(self, inputs: Inputs) -> Tensor:
        """Returns the logits after the prompts: ``[rows, vocabulary]``."""
        self._ids, mask = to_right(inputs["input_ids"], inputs["attention_mask"])
        self._lengths = mask.sum(1)
        return self._run()

    def step(self, tokens: Tensor) -> Tensor:
        """Appends one token a row; returns the logits after it."""
        self._ids = torch.cat([self._ids, self._ids.new_zeros(len(tokens), 1)], dim=1)
        self._ids[torch.arange(len(tokens)), self._lengths] = tokens
        self._lengths = self._lengths + 1
        return self._run()

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self._ids, self._lengths = self._ids[rows], self._lengths[rows]

    def _run(self) -> Tensor:
        longest = int(self._lengths.max())
        ids = self._ids[:, :longest]
        mask = (torch.arange(longest, device=ids.device) < self._lengths[:, None]).long()
        inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": ids.new_zeros(()).expand_as(ids),
        }
        logits = self._runner({name: inputs[name] for name in self._runner.input_names})["logits"]
        return logits[torch.arange(len(ids)), self._lengths - 1]


@torch.inference_mode()
def exercise(make: Callable[[], Decoder], sample: Callable[[int, int], Inputs]) -> None:
    """Runs decoders through each of their steps, for warming up; a single row is a case apart.

    Args:
        make: Returns a new decoder.
        sample: Returns inputs of so many rows and tokens.
    """
    for rows, tokens in ((1, 6), (3, 9), (1, 1)):
        decoder = make()
        logits = decoder.start(sample(rows, tokens))
        token = torch.zeros(rows, dtype=torch.int64, device=logits.device)
        for _ in range(3):
            decoder.step(token.clone())
        decoder.keep(torch.arange(max(rows - 1, 1), device=logits.device))
        decoder.step(token[: max(rows - 1, 1)].clone())


def positions(mask: Tensor) -> Tensor:
    """Returns the position of every token in its own row, padding not counted."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def to_left(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Moves the padding of ``[rows, tokens]`` to the left, wherever it is."""
    return _sorted_by(ids, mask, mask)


def to_right(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Moves the padding of ``[rows, tokens]`` to the right, wherever it is."""
    return _sorted_by(ids, mask, 1 - mask)


def _sorted_by(ids: Tensor, mask: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    order = key.argsort(dim=1, stable=True)
    return ids.gather(1, order), mask.gather(1, order)
