"""Sentence similarity: how near the meanings of some sentences are to that of another one."""

from __future__ import annotations

from typing import Any

import torch

from marserve.handlers.errors import RequestError
from marserve.handlers.rows import check_text, text_field
from marserve.handlers.runners.base import Runner
from marserve.handlers.tasks.base import Item, TextTask
from marserve.handlers.tasks.feature_extraction import pool
from marserve.handlers.tasks.parts import run_in_parts
from marserve.handlers.tokens import TokenBatch

_EXAMPLE = '{"source_sentence": "...", "sentences": ["...", "..."]}'


class SentenceSimilarity(TextTask):
    """Answers with the cosine between the source sentence and each of the others."""

    auto_class = "AutoModel"
    output_names = ("last_hidden_state",)
    spare_weights = ("pooler.",)
    labelled = False
    per_token = True
    explains = False

    def parse(self, value: Any) -> Item:
        """Returns the sentences; a row each, the source first."""
        if isinstance(value, str):
            raise RequestError(f"the request is plain text; expected {_EXAMPLE}")
        source = text_field(value, "source_sentence", _EXAMPLE)
        others = value.get("sentences")
        if not isinstance(others, (list, tuple)) or not others:
            raise RequestError(f'"sentences" is no list of texts; expected {_EXAMPLE}')
        if not all(isinstance(each, str) for each in others):
            raise RequestError(f'"sentences" holds what is no text; expected {_EXAMPLE}')
        return {"rows": [source, *map(check_text, others)]}

    def encode(self, items: list[Item], offsets: bool = False) -> TokenBatch:
        """Returns the tokens of all sentences."""
        return self.encoder([text for item in items for text in item["rows"]], offsets)

    def run(self, runner: Runner, batch: TokenBatch, items: list[Item]) -> Any:
        """Runs the sentences, as many at a time as memory allows."""
        return run_in_parts(runner, batch)

    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns a list of cosines, -1 to 1, an item."""
        states = outputs["last_hidden_state"]
        mask = batch.inputs["attention_mask"].to(states.device)
        pooling = self.settings.options.pooling
        vectors = pool(states, mask, "cls" if pooling == "cls" else "mean")
        groups = vectors.split([len(item["rows"]) for item in items])
        return [torch.cosine_similarity(each[:1], each[1:]).tolist() for each in groups]


TASK = SentenceSimilarity
