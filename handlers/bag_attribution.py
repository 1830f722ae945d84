"""Integrated gradients for a model on a bag of tokens: how much each token added to a score.

The bag is the sum or mean of its tokens' embeddings, so along the straight path from a bag of token
0 every token has the same gradient, and one path through the bag serves all of them.

Source: Sundararajan, Taly, Yan, "Axiomatic attribution for deep networks", 2017.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from marserve.handlers.errors import RequestError


def bag_attributions(
    model: nn.Module, bag: nn.EmbeddingBag, ids: Tensor, target: int, steps: int = 50
) -> Tensor:
    """Returns the attribution of every token.

    Args:
        model: Called with ids and offsets, returns logits ``[texts, classes]``.
        bag: Its embedding, of mode ``mean`` or ``sum``.
        ids: Tokens of one text, ``[tokens] int64``.
        target: Class whose logit is explained.
        steps: Points on the path, by the midpoint rule.

    Returns:
        ``[tokens, embedding] float``; its sum is the logit's difference to that of the baseline.

    Raises:
        RequestError: If the bag is of another mode.
    """
    if bag.mode not in ("mean", "sum"):
        raise RequestError(f"explanations need an embedding of mode mean or sum, not {bag.mode}")
    share = 1 / len(ids) if bag.mode == "mean" else 1.0
    with torch.no_grad():
        baseline = bag.weight[0].expand(len(ids), -1) * share
        parts = bag.weight[ids] * share - baseline
    points = (torch.arange(steps, device=ids.device) + 0.5) / steps
    path = baseline.sum(0) + points[:, None] * parts.sum(0)
    gradient = _gradients(model, bag, ids, path.requires_grad_(), target).mean(0)
    return parts * gradient


def _gradients(
    model: nn.Module, bag: nn.EmbeddingBag, ids: Tensor, path: Tensor, target: int
) -> Tensor:
    """The gradient of the logit at every point of the path, as if it were the bag of a text."""

    def replace(*_: Any) -> Tensor:
        return path

    handle = bag.register_forward_hook(replace)
    try:
        with torch.enable_grad():
            logits = model(ids, torch.zeros(len(path), dtype=torch.int64, device=ids.device))
    finally:
        handle.remove()
    return torch.autograd.grad(logits[:, target].sum(), path)[0]
