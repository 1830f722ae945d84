"""The last layer for the first token alone: the same logits, less work, only where it may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tests.handlers.test_unpadded import LENGTHS, USUAL, batch, eager
from torch import Tensor, nn

from marserve.handlers.export.subject import Subject
from marserve.handlers.runners.first_token import (
    LAYERS,
    FirstTokenLayer,
    attend_each,
    attend_padded,
    narrowed,
)
from marserve.handlers.runners.quantized import quantize_module
from marserve.handlers.runners.unpadded import UnpaddedRunner
from marserve.handlers.runners.unpadded_attention import Packing

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
    assert "the head seems to read more than the first one" in caplog.text


def test_a_class_of_the_users_own_is_left_alone() -> None:
    class OwnForSequenceClassification(transformers.BertForSequenceClassification):
        """Its forward may do anything."""

    config: Any = transformers.AutoConfig.for_model("bert", **USUAL)
    module: Any = OwnForSequenceClassification(config)

    assert narrowed(module.eval()) is module


def test_attention_that_returns_weights_is_left_alone() -> None:
    runner, _ = eager("distilbert", "sequence_classification", attn_implementation="eager")
    module = runner.module

    assert narrowed(module) is module


def test_a_text_of_no_tokens_gives_what_the_model_gives_and_changes_nobody_else() -> None:
    whole, _ = eager("bert", "sequence_classification")
    inputs = batch(LENGTHS, whole.input_names)
    inputs["attention_mask"][2] = 0
    inputs["attention_mask"][-1] = 0
    expected = whole(inputs)["logits"]

    found = UnpaddedRunner(whole, "encoder")(inputs)["logits"]

    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_eight_bits_are_no_obstacle() -> None:
    module = quantize_module(eager("bert", "sequence_classification")[0].module, "int8_dynamic")

    assert isinstance(layers_of(narrowed(module), "bert")[-1], FirstTokenLayer)


def test_a_model_that_the_trial_does_not_fit_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module: Any = eager("bert", "sequence_classification")[0].module
    for layer in module.bert.encoder.layer:
        layer.chunk_size_feed_forward = 2  # of seven tokens

    assert narrowed(module) is module
    assert "a trial fails" in caplog.text


def test_exported_programs_are_narrowed() -> None:
    runner, _ = eager("bert", "sequence_classification")

    forward = Subject(runner, runner.input_names, ("logits",)).forward()

    assert isinstance(layers_of(forward.model, "bert")[-1], FirstTokenLayer)


def test_both_ways_of_attention_agree() -> None:
    mask = (torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]).long()
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(len(LENGTHS), 2, 1, 8, generator=generator)
    key, value = torch.randn(2, 1, 2, sum(LENGTHS), 8, generator=generator)

    each = attend_each(query, key, value, Packing(mask))

    torch.testing.assert_close(attend_padded(query, key, value, Packing(mask)), each)
