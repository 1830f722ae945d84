"""TextClassifier: the built-in handler ``text_classifier``, for bags of words and word pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from marserve.handlers.bag_attribution import bag_attributions
from marserve.handlers.errors import RequestError
from marserve.handlers.scores import map_class_to_label
from marserve.handlers.text_cleaning import ngrams
from marserve.handlers.text_handler import TextHandler


@dataclass(frozen=True, slots=True)
class Bags:
    """The tokens of a batch of texts.

    Args:
        ids: ``[tokens of all texts] int64``.
        offsets: ``[texts] int64``, where each text begins.
        words: The tokens of every text.
    """

    ids: Tensor
    offsets: Tensor
    words: list[list[str]]


class TextClassifier(TextHandler):
    """Answers the probability of every class; the model is called with token ids and offsets.

    Attributes:
        ngrams: Longest run of words that counts as a token.
    """

    ngrams = 2

    def preprocess(self, data: list[Any]) -> Bags:
        """Turns rows into token ids.

        Args:
            data: One row a request, with text under ``data`` or ``body``.

        Raises:
            RequestError: If a row holds no text, or one without a word.
        """
        words = [ngrams(self._tokenize(self._clean(_text(row))), self.ngrams) for row in data]
        if not all(words):
            raise RequestError("the text has no words")
        ids = [index for each in words for index in self.source_vocab.lookup_indices(each)]
        lengths = torch.tensor([0, *map(len, words[:-1])])
        return Bags(torch.tensor(ids, device=self.device), lengths.cumsum(0).to(self.device), words)

    @torch.inference_mode()
    def inference(self, data: Bags, *args: Any, **kwargs: Any) -> Any:
        """Runs the model on the texts of a batch."""
        return self.model(data.ids, data.offsets, *args, **kwargs)

    def postprocess(self, data: Tensor) -> list[Any]:
        """Turns logits ``[rows, classes]`` into one object of label and probability a row."""
        return map_class_to_label(torch.softmax(data.float(), dim=1).tolist(), self.mapping)

    def get_insights(self, tensor_data: Bags, _: Any, target: Any = 0) -> list[Any]:
        """Returns how much every word added to the score of a class, by integrated gradients.

        Args:
            tensor_data: Of one text.
            target: Index of the class.

        Returns:
            One object of ``importances`` and ``words``.

        Raises:
            RequestError: If the model has no such embedding.
        """
        bag = getattr(self.model, "embedding", None)
        if not isinstance(bag, nn.EmbeddingBag):
            raise RequestError(
                "explanations need an EmbeddingBag named embedding in the model", 501
            )
        attributions = bag_attributions(self.model, bag, tensor_data.ids, int(target))
        return [
            {
                "importances": self.summarize_attributions(attributions).tolist(),
                "words": self.get_word_token(tensor_data.words[0]),
            }
        ]

    def _clean(self, text: str) -> str:
        for step in (
            self._remove_html_tags,
            self._lowercase_text,
            self._expand_contractions,
            self._remove_accented_characters,
            self._remove_punctuation,
        ):
            text = step(text)
        return text


def _text(row: Any) -> str:
    value = row.get("data")
    if value is None:
        value = row.get("body")
    if isinstance(value, dict):
        value = value.get("text")
    if isinstance(value, (bytes, bytearray)):
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"the body is no UTF-8 text: {error.reason}") from None
    if not isinstance(value, str):
        raise RequestError('the request holds no text; expected text, or {"text": "..."}')
    return value
