"""Token classification: one label for every token of a text."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from marserve.handlers.errors import RequestError
from marserve.handlers.explain import Explainer
from marserve.handlers.explain_words import with_words
from marserve.handlers.tasks.base import Item, TextTask, row_index
from marserve.handlers.tasks.sequence_classification import class_index
from marserve.handlers.tokens import TokenBatch

OUTSIDE = "O"  # the label of a token that is part of nothing


class TokenClassification(TextTask):
    """Answers with pairs of token and label, the special tokens included, padding not."""

    auto_class = "AutoModelForTokenClassification"
    per_token = True

    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns a list of ``[token, label]`` a row."""
        labels = self.settings.labels
        best = outputs["logits"].argmax(-1).tolist()
        return [
            [
                [token, labels[best[row][at]]]
                for token, at in zip(batch.tokens(row), batch.kept(row), strict=True)
            ]
            for row in range(len(items))
        ]

    def check_target(self, item: Item) -> Item:
        """Brings ``target`` to token position and class index, or None for the model's choice."""
        target = item.get("target")
        if target is None:
            return {**item, "target": None}
        if not isinstance(target, (list, tuple)) or len(target) != 2 or not _is_index(target[0]):
            raise RequestError(
                f'"target" is {target!r:.80}; expected the position of a token and the index of a'
                " class, such as [1, 2]"
            )
        return {**item, "target": (target[0], class_index(target[1], self.settings.labels))}

    def explain(self, explainer: Explainer, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns words, importances and delta a row; ``target`` where the request named none."""
        logits = explainer.outputs(batch.inputs)["logits"].float()
        lengths = [len(batch.kept(row)) for row in range(len(items))]
        targets = [item["target"] for item in items]
        chosen = self._choose(logits, batch)
        for row, target in enumerate(targets):
            if target is None or target[0] >= lengths[row]:
                targets[row] = chosen[row]
        attribution = explainer.attribute(
            batch.inputs,
            explainer.baseline(batch),
            _pick,
            row_index([target[0] for target in targets], explainer.device),
            row_index([target[1] for target in targets], explainer.device),
        )
        answers = [
            {
                **attribution.answer(batch, row),
                **({} if item["target"] else {"target": list(targets[row])}),
            }
            for row, item in enumerate(items)
        ]
        return [
            _beyond(item["target"], lengths[row]) or with_words(answers[row], batch, row)
            for row, item in enumerate(items)
        ]

    def _choose(self, logits: Tensor, batch: TokenBatch) -> list[tuple[int, int]]:
        """The surest label of each row that is not "outside", at a token that is not special."""
        chances = logits.softmax(-1)
        special = torch.tensor([e.special_tokens_mask for e in batch.encodings]).bool()
        chances = chances.masked_fill(special.to(chances.device)[..., None], -1.0)
        labels = self.settings.labels
        if OUTSIDE in labels and len(labels) > 1:
            chances[..., labels.index(OUTSIDE)] = -1.0
        best = chances.flatten(1).argmax(1).tolist()
        return [divmod(index, len(labels)) for index in best]


def _pick(outputs: Any, at: Tensor, label: Tensor) -> Tensor:
    logits: Tensor = outputs["logits"]
    return logits[torch.arange(len(at), device=at.device), at, label]


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _beyond(target: Any, length: int) -> RequestError | None:
    if target is None or target[0] < length:
        return None
    return RequestError(
        f'"target" names token {target[0]}; the text has {length} tokens, 0 to {length - 1}'
    )


TASK = TokenClassification
