"""Why a model answered as it did: integrated gradients over its input embeddings, by Captum.

Source: Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017. The integral runs from
a baseline, where every token that is not special is padding, to the text. The sum of a row's scores
is the difference of the model's output between the two, up to ``delta``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from marserve.handlers.tokens import TokenBatch

METHODS = ("layer_integrated_gradients",)
N_STEPS = 50
INTERNAL_BATCH_SIZE = 32  # rows of one pass; more costs memory and gains nothing (measured to 50)

Score = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Attribution:
    """How much each token moved a model's output.

    Args:
        scores: ``[rows, tokens] float32``, summed over the embedding; zero at padding.
        delta: ``[rows] float32``, the error of the integral.
    """

    scores: Tensor
    delta: Tensor

    def importances(self, row: int, mask: Tensor) -> list[float]:
        """Returns a row's scores without padding, scaled to a length of one.

        Args:
            row: Which row.
            mask: ``[rows, tokens]``, zero at padding.
        """
        scores = self.scores[row][mask[row].bool()]
        norm = scores.norm()
        scaled: list[float] = (scores / norm if norm > 0 else scores).tolist()
        return scaled

    def answer(self, batch: TokenBatch, row: int) -> dict[str, Any]:
        """Returns words, importances and delta of a row."""
        return {
            "words": batch.tokens(row),
            "importances": self.importances(row, batch.inputs["attention_mask"].cpu()),
            "delta": self.delta[row].item(),
        }


class Explainer:
    """Computes attributions for one model.

    Args:
        module: The eager model.
        embedding_name: Attribute of the model whose ``embeddings`` the integral runs over, or None.
        pad_token_id: What stands for "no token" in the baseline.
        n_steps: Steps of the integral.
        internal_batch_size: Rows of one pass through the model.
    """

    def __init__(
        self,
        module: nn.Module,
        embedding_name: str | None,
        pad_token_id: int,
        n_steps: int = N_STEPS,
        internal_batch_size: int = INTERNAL_BATCH_SIZE,
    ) -> None:
        self.module = module
        self._layer = embedding_layer(module, embedding_name)
        self._parameters = inspect.signature(module.forward).parameters
        self._pad_token_id = pad_token_id
        self._n_steps = n_steps
        self._internal_batch_size = internal_batch_size

    @property
    def device(self) -> torch.device:
        """Where the inputs must be."""
        return next(self.module.parameters()).device

    def takes(self, name: str) -> bool:
        """Tells whether the model has an argument of that name."""
        return name in self._parameters

    @torch.no_grad()
    def outputs(self, inputs: dict[str, Tensor]) -> Any:
        """Runs the model, to find out what there is to explain."""
        return self.module(**inputs)

    def baseline(self, batch: TokenBatch) -> Tensor:
        """Returns ids in which only special tokens are left: ``[rows, tokens] int64``."""
        ids = batch.inputs["input_ids"]
        special = torch.tensor([e.special_tokens_mask for e in batch.encodings], device=ids.device)
        return ids.where(special.bool(), self._pad_token_id)

    def attribute(
        self,
        inputs: dict[str, Tensor],
        baseline: Tensor,
        score: Score,
        *index: Tensor,
        **constants: Any,
    ) -> Attribution:
        """Attributes a score of every row to its tokens.

        Args:
            inputs: What the model takes; ``input_ids`` among them.
            baseline: As ``baseline`` returns it.
            score: Called with the model's outputs and ``index``; returns ``[rows]``.
            index: What ``score`` picks in each row; first dimension the row.
            constants: Further arguments of the model that are the same for every row.
        """
        from captum.attr import LayerIntegratedGradients

        names = [name for name in inputs if name != "input_ids"]

        def forward(ids: Tensor, *rest: Tensor) -> Tensor:
            tensors = dict(zip(names, rest[: len(names)], strict=True))
            outputs = self.module(input_ids=ids, **tensors, **constants)
            return score(outputs, *rest[len(names) :]).float()

        ids = inputs["input_ids"]
        integral: Any = LayerIntegratedGradients(forward, self._layer)
        scores, delta = integral.attribute(
            ids,
            baselines=baseline,
            additional_forward_args=(*(inputs[name] for name in names), *index),
            n_steps=self._n_steps,
            internal_batch_size=max(self._internal_batch_size, len(ids)),
            return_convergence_delta=True,
        )
        return Attribution(scores.detach().float().sum(-1).cpu(), delta.detach().float().cpu())


def embedding_layer(module: Any, name: str | None) -> nn.Module:
    """Finds the layer whose output stands for the tokens.

    Args:
        module: A transformers model.
        name: Attribute of the model, such as ``bert``, or None.

    Returns:
        The model's whole ``embeddings`` where it has them (their positions must not follow the
        baseline's ids), else its token embeddings alone.
    """
    for owner in (getattr(module, name, None) if name else None, module.base_model):
        layer = getattr(owner, "embeddings", None)
        if isinstance(layer, nn.Module):
            return layer
    found: nn.Module = module.get_input_embeddings()
    return found
