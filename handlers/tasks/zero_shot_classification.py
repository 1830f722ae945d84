"""Zero-shot classification: labels that each request brings, by a model of entailment."""

from __future__ import annotations

from typing import Any

import torch

from marserve.handlers.errors import RequestError
from marserve.handlers.explain import Explainer
from marserve.handlers.explain_words import with_words
from marserve.handlers.rows import check_text
from marserve.handlers.runners.base import Runner
from marserve.handlers.tasks.base import Item, TaskSettings, TextTask, row_index
from marserve.handlers.tasks.parts import run_in_parts
from marserve.handlers.tokens import TokenBatch

_TEMPLATE = "This example is {}."
_EXAMPLE = '{"text": "...", "candidate_labels": ["...", "..."]}'


class ZeroShotClassification(TextTask):
    """Answers with the labels of the request and their scores, best first.

    A request may bring ``hypothesis_template``, in which ``{}`` stands for the label, and
    ``multi_label``: whether the labels are scored each for itself, not against each other.
    """

    auto_class = "AutoModelForSequenceClassification"
    labelled = False

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        super().__init__(settings, input_names)
        names = {name.lower(): at for name, at in (settings.config.label2id or {}).items()}
        found = [at for name, at in names.items() if name.startswith("entail")]
        self._entails = found[0] if found else settings.config.num_labels - 1
        # The class that says the opposite, against which one label alone is weighed.
        self._contradicts = settings.config.num_labels - 1 if self._entails == 0 else 0

    def parse(self, value: Any) -> Item:
        """Returns the text and its labels; a row each."""
        if isinstance(value, str):
            raise RequestError(f"the request is plain text; expected {_EXAMPLE}")
        item = super().parse(value)
        labels = item.get("candidate_labels")
        if isinstance(labels, (bytes, bytearray)):
            labels = labels.decode(errors="replace")
        if isinstance(labels, str):
            labels = [label.strip() for label in labels.split(",") if label.strip()]
        if (
            not isinstance(labels, (list, tuple))
            or not labels
            or not all(isinstance(label, str) for label in labels)
        ):
            raise RequestError(f'"candidate_labels" is no list of texts; expected {_EXAMPLE}')
        template = item.get("hypothesis_template", _TEMPLATE)
        if not isinstance(template, str) or "{}" not in template:
            raise RequestError(f'"hypothesis_template" has no {{}}; expected such as "{_TEMPLATE}"')
        multi = item.get("multi_label", False)
        if not isinstance(multi, bool):
            raise RequestError(f'"multi_label" is {multi!r:.80}; expected true or false')
        rows = [(item["text"], template.replace("{}", check_text(label))) for label in labels]
        return {**item, "labels": list(labels), "multi": multi, "rows": rows}

    def encode(self, items: list[Item], offsets: bool = False) -> TokenBatch:
        """Returns the tokens of all pairs of text and hypothesis."""
        return self.encoder([pair for item in items for pair in item["rows"]], offsets)

    def run(self, runner: Runner, batch: TokenBatch, items: list[Item]) -> Any:
        """Runs the pairs, as many at a time as memory allows."""
        return run_in_parts(runner, batch)

    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns an object of sequence, labels and scores an item."""
        results = []
        for item, logits in zip(items, self._groups(outputs["logits"], items), strict=True):
            if item["multi"] or len(item["labels"]) == 1:
                pair = logits[:, [self._contradicts, self._entails]]
                scores = pair.softmax(-1)[:, 1]
            else:
                scores = logits[:, self._entails].softmax(0)
            order = scores.argsort(descending=True, stable=True).tolist()
            ordered = [scores[at].item() for at in order]
            labels = [item["labels"][at] for at in order]
            results.append({"sequence": item["text"], "labels": labels, "scores": ordered})
        return results

    def explain(self, explainer: Explainer, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns words, importances and delta for the best label, and that label, an item."""
        logits = explainer.outputs(batch.inputs)["logits"]
        best = [group[:, self._entails].argmax().item() for group in self._groups(logits, items)]
        starts = torch.tensor([0, *(len(item["rows"]) for item in items)]).cumsum(0).tolist()
        chosen = batch.select([int(start + at) for start, at in zip(starts, best, strict=False)])
        attribution = explainer.attribute(
            chosen.inputs,
            explainer.baseline(chosen),
            lambda outputs, at: outputs["logits"].gather(1, at[:, None])[:, 0],
            row_index([self._entails] * len(items), explainer.device),
        )
        answers = [
            {**attribution.answer(chosen, row), "target": item["labels"][int(best[row])]}
            for row, item in enumerate(items)
        ]
        return [with_words(answer, chosen, row) for row, answer in enumerate(answers)]

    def _groups(self, logits: torch.Tensor, items: list[Item]) -> list[torch.Tensor]:
        return list(logits.float().split([len(item["rows"]) for item in items]))


TASK = ZeroShotClassification
