"""Sequence classification: one label for a text."""

from __future__ import annotations

from typing import Any

from marserve.handlers.errors import RequestError
from marserve.handlers.explain import Explainer
from marserve.handlers.explain_words import with_words
from marserve.handlers.tasks.base import Item, TextTask, row_index
from marserve.handlers.tokens import TokenBatch


class SequenceClassification(TextTask):
    """Answers with the name of the best class, or with the best ones and their probabilities."""

    auto_class = "AutoModelForSequenceClassification"

    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns a label a row; with ``top_k``, an object of labels and probabilities."""
        labels, top_k = self.settings.labels, self.settings.top_k
        if top_k is None:
            return [labels[best] for best in outputs["logits"].argmax(-1).tolist()]
        chances = outputs["logits"].float().softmax(-1)
        values, classes = chances.topk(min(top_k, len(labels)))
        return [
            {labels[i]: value for i, value in zip(indices, row, strict=True)}
            for indices, row in zip(classes.tolist(), values.tolist(), strict=True)
        ]

    def check_target(self, item: Item) -> Item:
        """Brings ``target`` to the index of a class, or None for the predicted one."""
        return {**item, "target": class_index(item.get("target"), self.settings.labels)}

    def explain(self, explainer: Explainer, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns words, importances and delta a row."""
        predicted = explainer.outputs(batch.inputs)["logits"].argmax(-1).tolist()
        classes = [
            item["target"] if item["target"] is not None else best
            for item, best in zip(items, predicted, strict=True)
        ]
        attribution = explainer.attribute(
            batch.inputs,
            explainer.baseline(batch),
            lambda outputs, target: outputs["logits"].gather(1, target[:, None])[:, 0],
            row_index(classes, explainer.device),
        )
        return [with_words(attribution.answer(batch, row), batch, row) for row in range(len(items))]


def class_index(target: Any, labels: list[str]) -> int | None:
    """Returns the index of the class that a request names by number or by label.

    Raises:
        RequestError: If there is no such class.
    """
    if target is None:
        return None
    if isinstance(target, str) and target in labels:
        return labels.index(target)
    if isinstance(target, str) and target.strip().isdecimal():
        target = int(target)
    if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(labels):
        return target
    raise RequestError(
        f'"target" is {target!r:.80}; expected the index of a class, 0 to {len(labels) - 1}, or its'
        f" label, one of {', '.join(labels[:10])}"
    )


TASK = SequenceClassification
