"""Explanations from gradients at a model's embeddings: along a path, or at the text itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[..., Tensor]


def integrate(
    forward: Forward,
    layer: nn.Module,
    ids: Tensor,
    baseline: Tensor,
    rest: tuple[Tensor, ...],
    n_steps: int,
    internal_batch_size: int,
) -> tuple[Tensor, Tensor]:
    """Integrates the gradient from the baseline to the text, by Captum.

    Source: Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017. The sum of a row's
    scores is the difference of the output between the two, up to the error of the integral.

    Args:
        forward: Called with ids and ``rest``; returns ``[rows]``.
        layer: The embeddings.
        ids: ``[rows, tokens] int64``; no more rows than ``internal_batch_size``.
        baseline: The same shape.
        rest: Tensors whose first dimension is the row.
        n_steps: Steps of the integral.
        internal_batch_size: Most rows of one pass.

    Returns:
        ``[rows, tokens]``, and the error ``[rows]``.
    """
    from captum.attr import LayerIntegratedGradients

    method: Any = LayerIntegratedGradients(forward, layer)
    scores, delta = method.attribute(
        ids,
        baselines=baseline,
        additional_forward_args=rest,
        n_steps=n_steps,
        internal_batch_size=internal_batch_size,
        return_convergence_delta=True,
    )
    return scores.sum(-1), delta


def saliency(
    forward: Forward, layer: nn.Module, ids: Tensor, baseline: Tensor, rest: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """Returns how steep the output is at each token: one pass, and never negative.

    Source: Simonyan et al., "Deep Inside Convolutional Networks", 2013.

    Args:
        forward: Called with ids and ``rest``; returns ``[rows]``.
        layer: The embeddings.
        ids: ``[rows, tokens] int64``.
        baseline: The same shape; tokens that it shares count for nothing.
        rest: Tensors whose first dimension is the row.

    Returns:
        Lengths of the gradients ``[rows, tokens]``, and by how much their sum misses the difference
        between text and baseline ``[rows]``.
    """
    seen: list[Tensor] = []

    def watch(_: Any, __: Any, output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_(True))
        return seen[-1]

    hook = layer.register_forward_hook(watch)
    try:
        with torch.enable_grad():
            values = forward(ids, *rest)
    finally:
        hook.remove()
    (gradient,) = torch.autograd.grad(values.sum(), seen[0])
    scores = gradient.norm(dim=-1).masked_fill(ids == baseline, 0.0)
    with torch.no_grad():
        difference = values - forward(baseline, *rest)
    return scores, scores.sum(1) - difference
