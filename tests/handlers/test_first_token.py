"""The last layer for the first token alone: the same logits, less work, only where it may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tests.handlers.test_unpadded import LENGTHS, USUAL, batch, eager
from torch import Tensor, nn

from marserve.handlers.runners.first_token import LAYERS, FirstTokenLayer, narrowed
from marserve.handlers.runners.unpadded import UnpaddedRunner

LAST_ROWS = len(LENGTHS)


def layers_of(module: Any, kind: str) -> Any:
    found = module.base_model
    for name in LAYERS[kind].split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("kind", LAYERS)
def test_logits_are_those_of_the_whole_layer(kind: str) -> None:
    runner, _ = eager(kind, "sequence_classification")
    module: Any = runner.module
    inputs = batch(LENGTHS, runner.input_names, module.config.pad_token_id or 0)

    changed = narrowed(runner.module)
    found = runner.calling(changed)(inputs)["logits"]

    assert isinstance(layers_of(changed, kind)[-1], FirstTokenLayer)
    torch.testing.assert_close(found, runner(inputs)["logits"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_without_padding_too(kind: str) -> None:
    whole, _ = eager(kind, "sequence_classification")
    inputs = batch(LENGTHS, whole.input_names)
    expected = whole(inputs)["logits"]

    packed = UnpaddedRunner(whole, LAYERS[kind].split(".")[0])

    torch.testing.assert_close(packed(inputs)["logits"], expected, rtol=1e-5, atol=1e-5)


def test_other_tokens_are_left_out_of_the_last_layer_alone() -> None:
    runner, _ = eager("bert", "sequence_classification")
    rows: list[int] = []
    for layer in layers_of(runner.module, "bert"):
        layer.output.register_forward_pre_hook(
            lambda module, args: rows.append(args[0].shape[:-1].numel())
        )
    changed = narrowed(runner.module)
    rows.clear()

    runner.calling(changed)(batch(LENGTHS, runner.input_names))

    assert rows == [LAST_ROWS * max(LENGTHS), LAST_ROWS]


def test_the_model_itself_stays_as_it_is_and_its_weights_are_shared() -> None:
    runner, _ = eager("roberta", "sequence_classification")
    before = {name: value.data_ptr() for name, value in runner.module.named_parameters()}

    changed = narrowed(runner.module)

    assert not any(isinstance(part, FirstTokenLayer) for part in runner.module.modules())
    assert {value.data_ptr() for value in changed.parameters()} == set(before.values())
    assert {name: value.data_ptr() for name, value in runner.module.named_parameters()} == before


@pytest.mark.parametrize("task", ["token_classification", "question_answering"])
def test_heads_that_read_every_token_get_every_token(task: str) -> None:
    module = eager("bert", task)[0].module

    assert narrowed(module) is module


class MeanPooler(nn.Module):
    """Reads every token."""

    def forward(self, states: Tensor) -> Tensor:
        return states.mean(1)


def test_a_head_that_was_exchanged_is_found_out(caplog: pytest.LogCaptureFixture) -> None:
    module: Any = eager("bert", "sequence_classification")[0].module
    module.bert.pooler = MeanPooler()

    assert narrowed(module) is module
    assert "the head reads more than the first one" in caplog.text


def test_a_class_of_the_users_own_is_left_alone() -> None:
    class Own(transformers.BertForSequenceClassification):
        """Its forward may do anything."""

    config: Any = transformers.AutoConfig.for_model("bert", **USUAL)
    module: Any = Own(config)

    assert narrowed(module.eval()) is module


def test_attention_that_returns_weights_is_left_alone() -> None:
    runner, _ = eager("distilbert", "sequence_classification", attn_implementation="eager")
    module = runner.module

    assert narrowed(module) is module
