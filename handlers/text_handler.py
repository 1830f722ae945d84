"""TextHandler: what handlers of text with a vocabulary of their own have in common."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import Tensor

from marserve.handlers import text_cleaning
from marserve.handlers.base import BaseHandler
from marserve.handlers.vocabulary import load_vocabulary

VOCABULARY_FILE = "source_vocab.pt"


class TextHandler(BaseHandler):
    """Loads the vocabulary and cleans texts.

    Attributes:
        source_vocab: Token to index.
    """

    source_vocab: Any = None

    def initialize(self, context: Any) -> None:
        """Loads the model and its vocabulary.

        Raises:
            HandlerLoadError: If one of them cannot be loaded.
        """
        super().initialize(context)
        self.source_vocab = load_vocabulary(Path(self.get_source_vocab_path(context)))

    def get_source_vocab_path(self, ctx: Any) -> str:
        """Returns where the vocabulary is."""
        return os.path.join(ctx.system_properties["model_dir"], VOCABULARY_FILE)

    def get_word_token(self, input_tokens: list[str]) -> list[str]:
        """Returns tokens as words for an explanation, without a tokenizer's mark of a space."""
        return [token.removeprefix("\u0120") for token in input_tokens]

    def summarize_attributions(self, attributions: Tensor) -> Tensor:
        """Returns one number a token: the sum over the embedding, scaled to a norm of 1."""
        summed: Tensor = attributions.sum(dim=-1).squeeze(0)
        scaled: Tensor = summed / summed.norm().clamp_min(1e-12)
        return scaled

    def _remove_html_tags(self, text: str) -> str:
        return text_cleaning.remove_html_tags(text)

    def _lowercase_text(self, text: str) -> str:
        return text.lower()

    def _expand_contractions(self, text: str) -> str:
        return text_cleaning.expand_contractions(text)

    def _remove_accented_characters(self, text: str) -> str:
        return text_cleaning.remove_accented_characters(text)

    def _remove_punctuation(self, text: str) -> str:
        return text_cleaning.remove_punctuation(text)

    def _tokenize(self, text: str) -> list[str]:
        return text_cleaning.tokenize(text)
