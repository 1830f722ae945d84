from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import load
from tests.tiny_models import AUTO_CLASSES

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.runners import unpadded
from marserve.handlers.runners.base import Inputs, RunnerOptions
from marserve.handlers.runners.eager import EagerRunner
from marserve.handlers.runners.length_sorted import LengthSortedRunner
from marserve.handlers.runners.unpadded import ENCODERS, UnpaddedRunner
from marserve.handlers.runners.unpadded_attention import (
    Packing,
    attend,
    attend_each,
    attend_padded,
    has_varlen,
)

LENGTHS = [3, 17, 1, 9, 2, 17, 5]
TASKS = ("sequence_classification", "token_classification", "question_answering")
USUAL = {
    "vocab_size": 99,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
OWN: dict[str, dict[str, int]] = {
    "albert": {**USUAL, "embedding_size": 8},
    "electra": {**USUAL, "embedding_size": 8},
    "distilbert": {
        "vocab_size": 99,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 32,
        "max_position_embeddings": 64,
    },
}


def eager(kind: str, task: str, **more: Any) -> tuple[EagerRunner, RunnerOptions]:
    config = transformers.AutoConfig.for_model(kind, **OWN.get(kind, USUAL))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = getattr(transformers, AUTO_CLASSES[task]).from_config(config, **more).eval()
        for parameter in model.requires_grad_(False).parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    answers = task == "question_answering"
    options = RunnerOptions(
        directory=Path(),
        auto_class=AUTO_CLASSES[task],
        output_names=("start_logits", "end_logits") if answers else ("logits",),
        device=torch.device("cpu"),
        config=config,
        per_token=task != "sequence_classification",
    )
    return EagerRunner(model, options.output_names), options


def batch(lengths: list[int], names: tuple[str, ...], padding: int = 1) -> Inputs:
    mask = (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).long()
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(4, 90, mask.shape, generator=generator)
    inputs = {"input_ids": torch.where(mask.bool(), ids, padding), "attention_mask": mask}
    if "token_type_ids" in names:
        inputs["token_type_ids"] = ids % 2 * mask
    return inputs


def assert_equal(expected: EagerRunner, actual: Any, inputs: Inputs, per_token: bool) -> None:
    kept = inputs["attention_mask"].bool() if per_token else slice(None)
    left, right = expected(inputs), actual(inputs)

    assert list(left) == list(right)
    for name, values in left.items():
        assert values.shape == right[name].shape
        torch.testing.assert_close(values[kept], right[name][kept], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", sorted(ENCODERS))
def test_packed_outputs_are_those_of_padded_rows(kind: str, task: str) -> None:
    padded, _ = eager(kind, task)
    runner, options = eager(kind, task)
    packed = unpadded.apply(runner, options)

    assert isinstance(packed, UnpaddedRunner)
    inputs = batch(LENGTHS, padded.input_names, options.config.pad_token_id or 0)
    assert_equal(padded, packed, inputs, options.per_token)


@settings(deadline=None, max_examples=40)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_any_lengths(lengths: list[int]) -> None:
    padded, packed, options = pair()

    assert_equal(padded, packed, batch(lengths, padded.input_names), options.per_token)


@cache
def pair() -> tuple[EagerRunner, UnpaddedRunner, RunnerOptions]:
    runner, options = eager("roberta", "token_classification")
    return eager("roberta", "token_classification")[0], UnpaddedRunner(runner, "encoder"), options


def test_no_row_of_a_matrix_product_is_padding() -> None:
    runner, _ = eager("bert", "sequence_classification")
    packed = UnpaddedRunner(runner, "encoder")
    rows: list[int] = []
    module: Any = runner.module
    for layer in module.bert.encoder.layer:
        layer.intermediate.register_forward_pre_hook(
            lambda module, args: rows.append(args[0].shape[:-1].numel())
        )

    packed(batch(LENGTHS, packed.input_names))

    assert rows == [sum(LENGTHS), len(LENGTHS)]  # the head reads a text's first token alone


def test_the_model_itself_still_takes_padded_rows(tiny_model: TinyModel) -> None:
    plain = load(tiny_model("bert", "sequence_classification"))
    handler = load(tiny_model("bert", "sequence_classification"), BetterTransformer=True)
    tokens = plain.task.encode([{"text": "the film"}, {"text": "the film was not good at all"}])

    expected, actual = plain.model(**tokens.inputs), handler.model(**tokens.inputs)

    torch.testing.assert_close(expected.logits, actual.logits)


class TestWhatCannotBePacked:
    """Then batches run in parts of similar length, and the log says why."""

    def check(
        self, runner: EagerRunner, options: RunnerOptions, log: pytest.LogCaptureFixture, why: str
    ) -> None:
        expected = runner(batch(LENGTHS, runner.input_names))
        wrapped = unpadded.apply(runner, options)
        actual = wrapped(batch(LENGTHS, runner.input_names))

        assert isinstance(wrapped, LengthSortedRunner)
        assert why in log.text
        torch.testing.assert_close(expected["logits"], actual["logits"], atol=1e-5, rtol=1e-5)

    def test_an_unknown_architecture(self, caplog: pytest.LogCaptureFixture) -> None:
        self.check(*eager("mpnet", "sequence_classification"), caplog, "type mpnet are not known")

    def test_attention_of_the_users_choice(self, caplog: pytest.LogCaptureFixture) -> None:
        runner, options = eager("bert", "sequence_classification", attn_implementation="eager")

        self.check(runner, options, caplog, "attn_implementation is eager")

    def test_one_whose_packed_outputs_differ(self, caplog: pytest.LogCaptureFixture) -> None:
        runner, options = eager("bert", "sequence_classification")
        layer: Any = runner.module

        def neighbours(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
            return output + output.mean(1, keepdim=True)  # looks across the borders of texts

        layer.bert.encoder.layer[0].intermediate.register_forward_hook(neighbours)
        wrapped = unpadded.apply(runner, options)

        assert isinstance(wrapped, LengthSortedRunner)
        assert "logits of packed tokens differ" in caplog.text

    def test_one_whose_packed_form_fails(self, caplog: pytest.LogCaptureFixture) -> None:
        runner, options = eager("bert", "sequence_classification")
        layer: Any = runner.module

        def rows_only(module: Any, args: Any) -> None:
            if args[0].shape[0] == 1:
                raise ValueError("wants rows")

        layer.bert.encoder.layer[0].intermediate.register_forward_pre_hook(rows_only)

        self.check(runner, options, caplog, "the packed model fails: wants rows")

    def test_no_mask_to_tell_padding_from_text(self) -> None:
        runner, options = eager("bert", "sequence_classification")
        maskless = EagerRunner(runner.module, options.output_names, known=("input_ids",))

        with pytest.raises(HandlerLoadError, match="takes an attention_mask"):
            unpadded.apply(maskless, options)


def test_attention_with_a_bias_is_refused() -> None:
    states = torch.zeros((1, 2, 3, 4))
    packing = Packing(torch.ones((1, 3), dtype=torch.int64))

    with pytest.raises(NotImplementedError, match="a bias"):
        attend(
            torch.nn.Identity(), states, states, states, None, packing=packing, position_bias=states
        )


def states_of(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query, key, value = torch.randn((3, 1, 2, sum(lengths), 16)).unbind()
    return query, key, value


def test_one_call_for_all_texts_is_as_good_as_one_each() -> None:
    states, packing = states_of(LENGTHS), Packing(batch(LENGTHS, ())["attention_mask"])

    expected = attend_each(*states, packing, None)
    actual = attend_padded(*states, packing, None)

    torch.testing.assert_close(expected, actual, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_packs_too(dtype: torch.dtype) -> None:
    query, key, value = states_of(LENGTHS)
    packing = Packing(batch(LENGTHS, ())["attention_mask"])
    expected = attend_each(query, key, value, packing, None)
    q, k, v = (states.cuda().to(dtype) for states in (query, key, value))
    on_gpu = Packing(packing.mask.cuda())

    actual, _ = attend(torch.nn.Identity(), q, k, v, None, packing=on_gpu)

    assert has_varlen(q) == (dtype is torch.bfloat16)
    tolerance = 1e-4 if dtype is torch.float32 else 3e-2
    torch.testing.assert_close(expected, actual.float().cpu(), atol=tolerance, rtol=tolerance)
