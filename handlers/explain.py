"""Why a model answered as it did: how much each token of the input moved a score of the output.

A method compares the text with a baseline, in which every token that is not special is padding. Of
the methods, only occlusion needs nothing but the model's answers; the others need its gradients,
and so its eager weights.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from marserve.archiver.handler_options import Explain
from marserve.handlers.errors import RequestError
from marserve.handlers.explain_gradients import integrate, saliency
from marserve.handlers.explain_occlusion import occlude
from marserve.handlers.runners.base import Runner
from marserve.handlers.tokens import TokenBatch

GRADIENT_FREE = "occlusion"
N_STEPS = 50
INTERNAL_BATCH_SIZE = 32  # rows of one pass; more costs memory and gains nothing (measured to 50)

Score = Callable[..., Tensor]


class ExplanationTimeoutError(RequestError):
    """An explanation took longer than ``explain.time_limit_ms`` allows.

    Args:
        limit_ms: The limit, in milliseconds.
    """

    def __init__(self, limit_ms: int) -> None:
        super().__init__(
            f"the explanation took longer than {limit_ms} ms (explain.time_limit_ms); a shorter"
            " text, fewer n_steps, or the method saliency takes less",
            504,
        )


@dataclass(frozen=True, slots=True)
class Attribution:
    """How much each token moved a model's output.

    Args:
        scores: ``[rows, tokens] float32``; zero at padding.
        delta: ``[rows] float32``, by how much their sum misses the difference of the output between
            text and baseline.
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
        model: The eager model; or, for a method without gradients, any runner.
        embedding_name: Attribute of the model whose ``embeddings`` gradients are taken at, or None.
        pad_token_id: What stands for "no token" in the baseline.
        n_steps: Steps of an integral.
        internal_batch_size: Most rows of one pass through the model.
        method: A value of ``explain.method``.
        time_limit_ms: How long the explanations of one batch may take; None for any time.
    """

    def __init__(
        self,
        model: nn.Module | Runner,
        embedding_name: str | None,
        pad_token_id: int,
        n_steps: int = N_STEPS,
        internal_batch_size: int = INTERNAL_BATCH_SIZE,
        method: str = "layer_integrated_gradients",
        time_limit_ms: int | None = None,
    ) -> None:
        self._model = model
        self._method = method
        self._pad_token_id = pad_token_id
        self._n_steps = n_steps
        self._internal_batch_size = internal_batch_size
        self._time_limit_ms = time_limit_ms
        self._deadline: float | None = None
        if isinstance(model, nn.Module):
            module: nn.Module = model
            self._names = frozenset(inspect.signature(module.forward).parameters)
            self._device = next(module.parameters()).device
            self._layer = embedding_layer(module, embedding_name)
        else:
            self._names, self._device = frozenset(model.input_names), model.device

    @classmethod
    def configured(
        cls,
        model: nn.Module | Runner,
        embedding_name: str | None,
        pad_token_id: int,
        options: Explain | None,
    ) -> Explainer:
        """Returns an explainer with the settings of the section ``explain``."""
        options = options or Explain()
        return cls(
            model,
            embedding_name,
            pad_token_id,
            options.n_steps or N_STEPS,
            options.internal_batch_size or INTERNAL_BATCH_SIZE,
            options.method or "layer_integrated_gradients",
            options.time_limit_ms,
        )

    @property
    def device(self) -> torch.device:
        """Where the inputs must be."""
        return self._device

    @property
    def pads_left(self) -> bool:
        """Whether rows may be padded on the left: runners take padding on the right alone."""
        return isinstance(self._model, nn.Module)

    def begin(self) -> None:
        """Starts the clock of a batch."""
        limit = self._time_limit_ms
        self._deadline = None if limit is None else time.monotonic() + limit / 1e3

    def takes(self, name: str) -> bool:
        """Tells whether the model has an argument of that name."""
        return name in self._names

    @torch.no_grad()
    def outputs(self, inputs: dict[str, Tensor]) -> Any:
        """Runs the model, to find out what there is to explain."""
        size = self._internal_batch_size
        rows = len(inputs["input_ids"])
        if rows <= size:
            return self._run(inputs)
        parts = [
            self._run({name: values[at : at + size] for name, values in inputs.items()})
            for at in range(0, rows, size)
        ]
        wanted = [name for name in parts[0] if name.endswith("logits")]
        return {name: torch.cat([part[name] for part in parts]) for name in wanted}

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

        Raises:
            ExplanationTimeoutError: If the time since ``begin`` exceeds the limit.
        """
        names = [name for name in inputs if name != "input_ids"]

        def forward(ids: Tensor, *rest: Tensor) -> Tensor:
            tensors = dict(zip(names, rest[: len(names)], strict=True))
            outputs = self._run({"input_ids": ids, **tensors}, **constants)
            return score(outputs, *rest[len(names) :]).float()

        rest = (*(inputs[name] for name in names), *index)
        size = self._internal_batch_size
        parts = [
            self._attribute(
                forward,
                inputs["input_ids"][at : at + size],
                baseline[at : at + size],
                tuple(tensor[at : at + size] for tensor in rest),
            )
            for at in range(0, len(baseline), size)
        ]
        scores = torch.cat([part for part, _ in parts])
        deltas = torch.cat([part for _, part in parts])
        return Attribution(scores.detach().float().cpu(), deltas.detach().float().cpu())

    def _attribute(
        self, forward: Score, ids: Tensor, baseline: Tensor, rest: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        size = self._internal_batch_size
        if self._method == "saliency":
            return saliency(forward, self._layer, ids, baseline, rest)
        if self._method == GRADIENT_FREE:
            return occlude(forward, ids, baseline, rest, size)
        return integrate(forward, self._layer, ids, baseline, rest, self._n_steps, size)

    def _run(self, inputs: dict[str, Tensor], **constants: Any) -> Any:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise ExplanationTimeoutError(self._time_limit_ms or 0)
        if isinstance(self._model, nn.Module):
            return self._model(**inputs, **constants)
        if self._model.module is None and "token_type_ids" not in inputs:  # a program needs it all
            inputs = {**inputs, "token_type_ids": torch.zeros_like(inputs["input_ids"])}
        taken = {name: inputs[name] for name in self._model.input_names if name in inputs}
        return self._model(taken)


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
