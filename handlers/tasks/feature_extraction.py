"""Feature extraction: the vector of a text, or one of each of its tokens."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from marserve.handlers.tasks.base import Item, TextTask
from marserve.handlers.tokens import TokenBatch

Pooling = Literal["mean", "cls", "none"]


class FeatureExtraction(TextTask):
    """Answers with a list of numbers a text; with ``pooling: none``, such a list a token."""

    auto_class = "AutoModel"
    output_names = ("last_hidden_state",)
    spare_weights = ("pooler.",)  # a layer that many models are saved without
    labelled = False
    per_token = True
    explains = False

    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns the vectors of each text."""
        options = self.settings.options
        states = outputs["last_hidden_state"]
        if (options.pooling or "mean") == "none":
            vectors = [states[row, batch.kept(row)].float() for row in range(len(items))]
            return [_scaled(each, options.normalize).tolist() for each in vectors]
        mask = batch.inputs["attention_mask"].to(states.device)
        pooled = pool(states, mask, options.pooling or "mean")
        rows: list[Any] = _scaled(pooled, options.normalize).tolist()
        return rows


def pool(states: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """Brings the vectors of tokens to one a text.

    Args:
        states: ``[rows, tokens, size]``, padded on the right.
        mask: ``[rows, tokens]``, zero at padding.
        pooling: Their mean, or the first token's.

    Returns:
        ``[rows, size] float32``.
    """
    states = states.float()
    if pooling == "cls":
        return states[:, 0]
    weights = mask[..., None].float()
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


def _scaled(vectors: Tensor, normalize: bool | None) -> Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1) if normalize else vectors


TASK = FeatureExtraction
