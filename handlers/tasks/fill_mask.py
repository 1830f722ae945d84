"""Fill mask: which tokens fit the gaps of a text."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.explain import Explainer
from marserve.handlers.explain_words import with_words
from marserve.handlers.rows import whole_number
from marserve.handlers.tasks.base import Item, TaskSettings, TextTask, row_index
from marserve.handlers.tokens import TokenBatch

_TOP_K = 5


class FillMask(TextTask):
    """Answers with the likeliest tokens of the gap, best first.

    If there are several gaps, it is a list of such lists. A request may bring its own ``top_k``.
    """

    auto_class = "AutoModelForMaskedLM"
    labelled = False
    per_token = True

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        super().__init__(settings, input_names)
        if settings.tokenizer.mask_token is None:
            raise HandlerLoadError("mode: fill_mask needs a tokenizer that has a mask token")

    def parse(self, value: Any) -> Item:
        """Returns the text, which must have a gap, and the number of answers."""
        item, mask = super().parse(value), self.settings.tokenizer.mask_token
        if mask not in item["text"]:
            raise RequestError(f"the text has no gap: expected {mask} where words are missing")
        default = self.settings.top_k or _TOP_K
        return {**item, "top_k": whole_number(item, "top_k", default)}

    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns objects of score, token, token_str and sequence, in lists, an item."""
        return [
            self._answer(outputs["logits"][row], batch, row, item["top_k"])
            for row, item in enumerate(items)
        ]

    def _answer(self, logits: Tensor, batch: TokenBatch, row: int, top_k: int) -> Any:
        ids = [batch.encodings[row].ids[at] for at in batch.kept(row)]
        gaps = self._gaps(batch, row)
        if not gaps:
            return _truncated(self.settings.max_length)
        chances = logits[gaps].float().softmax(-1)
        values, tokens = chances.topk(min(top_k, chances.shape[1]))
        lists = [
            [
                self._fill(ids, at, token, score, len(gaps) == 1)
                for score, token in zip(scores, best, strict=True)
            ]
            for at, scores, best in zip(gaps, values.tolist(), tokens.tolist(), strict=True)
        ]
        return lists[0] if len(gaps) == 1 else lists

    def _fill(self, ids: list[int], at: int, token: int, score: float, alone: bool) -> Item:
        tokenizer = self.settings.tokenizer
        filled = [*ids[:at], token, *ids[at + 1 :]]
        # Where other gaps remain they are shown, and so are the special tokens around the text.
        sequence = tokenizer.decode(filled, skip_special_tokens=alone)
        return {
            "score": score,
            "token": token,
            "token_str": tokenizer.decode([token]),
            "sequence": sequence,
        }

    def _gaps(self, batch: TokenBatch, row: int) -> list[int]:
        mask = self.settings.tokenizer.mask_token_id
        return [at for at in batch.kept(row) if batch.encodings[row].ids[at] == mask]

    def explain(self, explainer: Explainer, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns words, importances and delta for the first gap's best token, and that token."""
        logits = explainer.outputs(batch.inputs)["logits"]
        gaps = [(self._gaps(batch, row) or [0])[0] for row in range(len(items))]
        best = logits[range(len(items)), gaps].argmax(-1).tolist()
        attribution = explainer.attribute(
            batch.inputs,
            explainer.baseline(batch),
            lambda outputs, at, token: outputs["logits"][
                torch.arange(len(at), device=at.device), at, token
            ],
            row_index(gaps, explainer.device),
            row_index(best, explainer.device),
        )
        targets = self.settings.tokenizer.convert_ids_to_tokens(best)
        return [
            with_words({**attribution.answer(batch, row), "target": targets[row]}, batch, row)
            if self._gaps(batch, row)
            else _truncated(self.settings.max_length)
            for row in range(len(items))
        ]


def _truncated(max_length: int) -> RequestError:
    return RequestError(f"the gap is beyond the first {max_length} tokens, which are all that fits")


TASK = FillMask
