"""Explanations without gradients: what the model says when one token after the other is hidden."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Forward = Callable[..., Tensor]


@torch.no_grad()
def occlude(
    forward: Forward, ids: Tensor, baseline: Tensor, rest: tuple[Tensor, ...], rows: int
) -> tuple[Tensor, Tensor]:
    """Returns by how much the output falls when a token is replaced by the baseline's.

    Source: Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", 2013. It
    costs a row of a pass for every token.

    Args:
        forward: Called with ids and ``rest``; returns ``[rows]``.
        ids: ``[rows, tokens] int64``.
        baseline: The same shape; tokens that it shares count for nothing.
        rest: Tensors whose first dimension is the row.
        rows: Most rows of one pass.

    Returns:
        ``[rows, tokens]``, and by how much their sum misses the difference between text and
        baseline ``[rows]``.
    """
    whole = forward(ids, *rest)
    scores = torch.zeros(ids.shape, device=whole.device)
    hidden = (ids != baseline).nonzero()
    for part in hidden.split(rows):
        row, at = part.unbind(1)
        without = ids[row]
        without[torch.arange(len(row), device=ids.device), at] = baseline[row, at]
        left = forward(without, *(tensor[row.to(tensor.device)] for tensor in rest))
        scores[row, at] = whole[row] - left
    return scores, scores.sum(1) - (whole - forward(baseline, *rest))
