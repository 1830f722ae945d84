"""Question answering: the piece of a context that answers a question."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from marserve.handlers.errors import RequestError
from marserve.handlers.explain import Explainer
from marserve.handlers.explain_words import with_words
from marserve.handlers.rows import text_field
from marserve.handlers.tasks.base import Item, TextTask, row_index
from marserve.handlers.tokens import TokenBatch

_EXAMPLE = '{"question": "...", "context": "..."}'


class QuestionAnswering(TextTask):
    """Answers with the characters of the context between the best start and the best end."""

    auto_class = "AutoModelForQuestionAnswering"
    output_names = ("start_logits", "end_logits")
    labelled = False
    per_token = True

    def parse(self, value: Any) -> Item:
        """Returns question and context."""
        if isinstance(value, str):
            raise RequestError(f"the request is plain text; expected {_EXAMPLE}")
        question = text_field(value, "question", _EXAMPLE)
        context = text_field(value, "context", _EXAMPLE)
        if not context.strip():
            raise RequestError('"context" is empty: there is nothing that could hold the answer')
        return {"question": question, "context": context}

    def encode(self, items: list[Item], offsets: bool = False) -> TokenBatch:
        """Returns pairs of question and context, with the place of each token in its text."""
        return self.encoder([(item["question"], item["context"]) for item in items], offsets=True)

    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns a piece of the context a row; empty if none of its tokens was kept."""
        spans = best_spans(outputs["start_logits"], outputs["end_logits"], in_context(batch))
        return [
            _piece(items[row]["context"], batch, row, *span) if span else ""
            for row, span in enumerate(spans)
        ]

    def explain(self, explainer: Explainer, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns words, and importances and delta for both ends of the answer, a row."""
        outputs = explainer.outputs(batch.inputs)
        spans = best_spans(outputs["start_logits"], outputs["end_logits"], in_context(batch))
        baseline = explainer.baseline(batch)
        mask = batch.inputs["attention_mask"].cpu()
        results: list[dict[str, Any]] = [{"words": batch.tokens(row)} for row in range(len(items))]
        deltas: list[dict[str, float]] = [{} for _ in items]
        for end, output in enumerate(self.output_names):
            attribution = explainer.attribute(
                batch.inputs,
                baseline,
                lambda outputs, at, output=output: outputs[output].gather(1, at[:, None])[:, 0],
                row_index([span[end] if span else 0 for span in spans], explainer.device),
            )
            name = output.removesuffix("_logits")
            for row, result in enumerate(results):
                result[f"importances_answer_{name}"] = attribution.importances(row, mask)
                deltas[row][f"delta_{name}"] = attribution.delta[row].item()
        return [
            with_words({**result, **deltas[row]}, batch, row) for row, result in enumerate(results)
        ]


def in_context(batch: TokenBatch) -> Tensor:
    """Returns which tokens are the context's: ``[rows, tokens] bool``."""
    return torch.tensor([[part == 1 for part in e.sequence_ids] for e in batch.encodings])


def best_spans(start: Tensor, end: Tensor, allowed: Tensor) -> list[tuple[int, int] | None]:
    """Finds the span with the highest sum of start and end logit in each row.

    Args:
        start: ``[rows, tokens]``.
        end: ``[rows, tokens]``.
        allowed: ``[rows, tokens] bool``, where a span may start and end.

    Returns:
        First and last position a row, the first not after the last; None where nothing is allowed.
    """
    allowed = allowed.to(start.device)
    start = start.float().masked_fill(~allowed, -torch.inf)
    end = end.float().masked_fill(~allowed, -torch.inf)
    # The best end at or after each position, from a running maximum taken from the right.
    best, index = end.flip(1).cummax(1)
    first = (start + best.flip(1)).argmax(1, keepdim=True)
    last = end.shape[1] - 1 - index.flip(1).gather(1, first)
    found = allowed.any(1).tolist()
    pairs = zip(first[:, 0].tolist(), last[:, 0].tolist(), found, strict=True)
    return [(a, b) if any_allowed else None for a, b, any_allowed in pairs]


def _piece(context: str, batch: TokenBatch, row: int, first: int, last: int) -> str:
    offsets = batch.encodings[row].offsets
    return context[offsets[first][0] : offsets[last][1]].strip()


TASK = QuestionAnswering
