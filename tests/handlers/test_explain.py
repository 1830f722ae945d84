from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import TEXTS, ask, load
from tests.handlers.test_transformer import CASES

from marserve.handlers.explain import Explainer, embedding_layer


def pick_first(outputs: Any) -> torch.Tensor:
    first: torch.Tensor = next(iter(outputs.values()))
    return first.flatten(1)[:, 0]


@pytest.mark.parametrize(("kind", "task"), CASES)
def test_scores_sum_to_the_difference_from_the_baseline(
    tiny_model: TinyModel, kind: str, task: str
) -> None:
    handler = load(tiny_model(kind, task))
    module: Any = handler.model
    explainer = Explainer(module, kind, handler.tokenizer.pad_token_id, n_steps=50)
    batch = handler.task.encode([handler.task.parse(text) for text in TEXTS[task]])
    baseline = explainer.baseline(batch)

    attribution = explainer.attribute(batch.inputs, baseline, pick_first)

    expected = pick_first(explainer.outputs(batch.inputs)) - pick_first(
        explainer.outputs({**batch.inputs, "input_ids": baseline})
    )
    assert attribution.scores.shape == batch.inputs["input_ids"].shape
    torch.testing.assert_close(expected, attribution.scores.sum(1), atol=1e-3, rtol=1e-2)
    torch.testing.assert_close(
        attribution.scores.sum(1) - expected, attribution.delta, atol=1e-5, rtol=1e-4
    )
    padding = ~batch.inputs["attention_mask"].bool()
    assert not attribution.scores[padding].any()


@pytest.mark.parametrize(
    ("kind", "name", "whole"),
    [
        ("bert", "bert", True),
        ("bert", None, True),
        ("bert", "no_such", True),
        ("roberta", "roberta", True),
        ("gpt2", "gpt2", False),
        ("llama", None, False),
    ],
)
def test_finds_the_embeddings(
    tiny_model: TinyModel, kind: str, name: str | None, whole: bool
) -> None:
    task = "sequence_classification" if whole else "text_generation"
    module: Any = load(tiny_model(kind, task)).model

    layer = embedding_layer(module, name)

    expected = module.base_model.embeddings if whole else module.get_input_embeddings()
    assert expected is layer


def test_settings_change_steps_and_passes(tiny_model: TinyModel) -> None:
    directory = tiny_model("bert", "sequence_classification")
    few = load(directory, explain={"n_steps": 3})
    many = load(directory, explain={"n_steps": 60, "internal_batch_size": 7})
    default = load(directory)

    rough, fine, usual = (ask(h, ["a good film"], explain=True)[0] for h in (few, many, default))

    assert rough["importances"] != fine["importances"]
    assert fine["importances"] == pytest.approx(usual["importances"], abs=1e-3)
    assert abs(fine["delta"]) <= 1e-3


def test_the_next_token_can_be_named(tiny_model: TinyModel) -> None:
    handler = load(tiny_model("gpt2", "text_generation"))

    default, named = ask(handler, ["the film", {"text": "the film", "target": "x"}], explain=True)

    prompt = handler.task.encode([{"text": "the film"}])
    likeliest = handler.model(**prompt.inputs).logits[0, -1].argmax()
    assert handler.tokenizer.convert_ids_to_tokens([int(likeliest)]) == [default["target"]]
    assert named["target"] == "x"


def test_nothing_but_special_tokens_has_no_importance(tiny_model: TinyModel) -> None:
    handler = load(tiny_model("bert", "sequence_classification"))

    (result,) = ask(handler, [""], explain=True)

    assert result == {"words": ["[CLS]", "[SEP]"], "importances": [0.0, 0.0], "delta": 0.0}
