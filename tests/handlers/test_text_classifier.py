"""The built-in classifier of bags of words, on a tiny model, and the cleaning of texts."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers import text_cleaning
from marserve.handlers.context import Context
from marserve.handlers.errors import RequestError
from marserve.handlers.metrics import HandlerMetrics
from marserve.handlers.text_classifier import TextClassifier
from marserve.handlers.vocabulary import load_vocabulary

TOKENS = ["<unk>", "good", "bad", "film", "good film", "not"]
MODEL = """
import torch
class Bag(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(6, 2, mode="mean")
        self.out = torch.nn.Linear(2, 2, bias=False)
        weight = [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 0.0], [2.0, 0.0], [0.0, 1.0]]
        self.embedding.weight.data = torch.tensor(weight)
        self.out.weight.data = torch.eye(2)
    def forward(self, text, offsets):
        return self.out(self.embedding(text, offsets))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "tiny_bag_model.py").write_text(MODEL)
    (tmp_path / "index_to_name.json").write_text(json.dumps({"0": "positive", "1": "negative"}))
    torch.save(OrderedDict((t, i) for i, t in enumerate(TOKENS)), tmp_path / "source_vocab.pt")
    return tmp_path


def context_of(directory: Path) -> Context:
    manifest = {"model": {"modelName": "m", "modelFile": "tiny_bag_model.py"}}
    return Context("m", str(directory), manifest, metrics=HandlerMetrics("m"))


def ask(directory: Path, *values: Any, **headers: str) -> list[Any]:
    handler, context = TextClassifier(), context_of(directory)
    handler.initialize(context)
    context.begin([str(i) for i in range(len(values))], [headers for _ in values])
    return handler.handle([{"body": value} for value in values], context)


def test_every_text_of_a_batch_is_classified(directory: Path) -> None:
    alone = ask(directory, "A <b>good</b> film!")
    together = ask(directory, bytearray(b"Bad."), "A <b>good</b> film!", {"text": "bad, bad"})

    assert pytest.approx(alone[0]) == together[1]
    assert together[1]["positive"] > 0.5
    assert all(answer["negative"] > 0.5 for answer in (together[0], together[2]))


def test_an_explanation_adds_up_over_words(directory: Path) -> None:
    [explanation] = ask(directory, "good film zebra", explain="True")
    importances = dict(zip(explanation["words"], explanation["importances"], strict=True))

    assert ["good", "film", "zebra", "good film", "film zebra"] == explanation["words"]
    assert 1 == pytest.approx(sum(value**2 for value in importances.values()))
    assert importances["good"] == pytest.approx(2 * importances["good film"])
    assert 0 == importances["zebra"] == importances["film"]


@pytest.mark.parametrize("value", ["", " <br> !!", [1], None, b"\xff\xfe"])
def test_what_is_no_text_is_refused(value: Any, directory: Path) -> None:
    with pytest.raises(RequestError, match="text"):
        ask(directory, value)


def test_a_missing_vocabulary_is_named(directory: Path) -> None:
    (directory / "source_vocab.pt").unlink()

    with pytest.raises(HandlerLoadError, match=r"no source_vocab\.pt: pack it with --extra-files"):
        ask(directory, "good")


@pytest.mark.parametrize("content", [{"a": 5}, ["a", 1], 7, torch.nn.Linear(1, 1)])
def test_what_is_no_vocabulary_is_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "source_vocab.pt"
    torch.save(content, path)

    with pytest.raises(HandlerLoadError, match=r"source_vocab\.pt: holds no plain vocabulary"):
        load_vocabulary(path)


def test_a_list_of_tokens_is_a_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "source_vocab.pt"
    torch.save(TOKENS, path)

    vocabulary = load_vocabulary(path)

    assert [1, 0] == vocabulary.lookup_indices(["good", "zebra"])
    assert ("bad", 6) == (vocabulary.lookup_token(2), len(vocabulary))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I don't, won't and can't", "I do not, will not and cannot"),
        ("They're sure she'd've come", "They are sure she would have come"),
        ("It\u2019s what's left", "It is what is left"),
        ("the dog's tail", "the dog's tail"),
    ],
)
def test_contractions_are_expanded(text: str, expected: str) -> None:
    assert expected == text_cleaning.expand_contractions(text)


def test_texts_are_cleaned_and_cut() -> None:
    assert "a b" == text_cleaning.remove_html_tags("<p class='x'>a&nbsp; b</p>&#39;")
    assert "cafe" == text_cleaning.remove_accented_characters("café")
    assert ["hello", ",", "world", "!"] == text_cleaning.tokenize('Hello, "world"!')
    assert ["a", "b", "c", "a b", "b c", "a b c"] == text_cleaning.ngrams(["a", "b", "c"], 3)


@given(st.text(max_size=200))
@settings(max_examples=80, deadline=None)
def test_no_text_breaks_the_cleaning(text: str) -> None:
    for step in (
        text_cleaning.remove_html_tags,
        text_cleaning.expand_contractions,
        text_cleaning.remove_accented_characters,
        text_cleaning.remove_punctuation,
    ):
        text = step(text)

    assert all(token.strip() for token in text_cleaning.tokenize(text))
