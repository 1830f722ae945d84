from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import TEXTS, ask, load
from tests.handlers.test_transformer import options
from torch import nn

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.runners.quantized import (
    LINEARS,
    DynamicLinear,
    WeightOnlyLinear,
    multiplies_eight_bits,
    quantize,
    quantize_module,
)

CASES = [
    ("bert", "sequence_classification"),
    ("distilbert", "token_classification"),
    ("roberta", "question_answering"),
]
ERRORS = {"int8_dynamic": 0.02 if multiplies_eight_bits() else 0.04, "int8_weight_only": 0.01}
ERRORS["float8_dynamic"] = 0.04


def relative_error(expected: torch.Tensor, actual: torch.Tensor) -> float:
    return float((expected - actual).norm() / expected.norm())


@pytest.mark.parametrize("scheme", sorted(LINEARS))
@pytest.mark.parametrize("shape", [(5, 64), (2, 7, 64)])
def test_a_layer_is_near_the_one_it_replaces(scheme: str, shape: tuple[int, ...]) -> None:
    linear = nn.Linear(64, 48).requires_grad_(False)
    linear.weight[3] *= 100  # its own scale: the other channels must not suffer
    states = torch.randn(shape)

    expected = linear(states)
    actual = LINEARS[scheme](linear.weight, linear.bias)(states)

    assert expected.shape == actual.shape
    for channel in range(48):
        bound = 2 * ERRORS[scheme]
        error = (expected[..., channel] - actual[..., channel]).norm()
        assert error < bound * linear.weight[channel].norm() * states.norm()


@settings(deadline=None, max_examples=50)
@given(rows=st.integers(1, 9), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_a_token_is_rounded_for_itself(rows: int, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn((24, 32), generator=generator)
    layer = DynamicLinear(weight, None)
    states = torch.randn((rows, 32), generator=generator)
    states[0] *= scale

    error = relative_error(states[0] @ weight.t(), layer(states)[0])

    assert error < 3 * ERRORS["int8_dynamic"]


def test_zeros_stay_zeros() -> None:
    layer = DynamicLinear(torch.randn(8, 16), torch.arange(8.0))

    assert torch.equal(torch.arange(8.0).expand(3, 8), layer(torch.zeros(3, 16)))
    assert torch.equal(torch.zeros(4, 4, dtype=torch.int8), quantize(torch.zeros(4, 4))[0])


@pytest.mark.parametrize("scheme", sorted(LINEARS))
@pytest.mark.parametrize("unpadded", [False, True])
@pytest.mark.parametrize(("kind", "task"), CASES)
def test_outputs_are_near_those_of_float32(
    tiny_model: TinyModel, kind: str, task: str, unpadded: bool, scheme: str
) -> None:
    plain = load(tiny_model(kind, task), **options(task))
    more: dict[str, Any] = {"quantization": scheme, "BetterTransformer": unpadded}
    handler = load(tiny_model(kind, task), **options(task, **more))
    items = [plain.task.parse(TEXTS[task][at % 2]) for at in range(4)]
    inputs = plain.task.encode(items).inputs

    expected, actual = plain.runner(inputs), handler.runner(inputs)

    for name, values in expected.items():
        kept = inputs["attention_mask"].bool() if plain.task.per_token else slice(None)
        assert 0 < relative_error(values[kept], actual[name][kept]) < 0.15
    assert len(ask(handler, TEXTS[task])) == len(TEXTS[task])


@pytest.mark.parametrize("scheme", sorted(LINEARS))
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_text_is_generated_too(tiny_model: TinyModel, kind: str, scheme: str) -> None:
    few = {"max_new_tokens": 6}
    handler = load(tiny_model(kind, "text_generation"), quantization=scheme, generation=few)

    (answer,) = ask(handler, TEXTS["text_generation"][:1])

    assert answer
    replaced = [part for part in handler.model.modules() if isinstance(part, LINEARS[scheme])]
    assert len(replaced) >= 4


def test_the_head_keeps_its_weights(tiny_model: TinyModel) -> None:
    handler = load(tiny_model("bert", "sequence_classification"), quantization="int8_dynamic")

    assert type(handler.model.classifier) is nn.Linear
    assert type(handler.model.bert.pooler.dense) is nn.Linear
    assert type(handler.model.bert.encoder.layer[0].output.dense) is DynamicLinear


def test_weights_take_a_quarter_of_the_bytes() -> None:
    layer = WeightOnlyLinear(torch.randn(256, 512), None)

    size = sum(buffer.numel() * buffer.element_size() for buffer in layer.buffers())

    assert size < 256 * 512 * 4 * 0.26


class TestWhatCannotBe:
    def test_another_dtype(self, tiny_model: TinyModel) -> None:
        with pytest.raises(HandlerLoadError, match=r"bfloat16; set handler.dtype: float32"):
            load(
                tiny_model("bert", "sequence_classification"),
                quantization="int8_dynamic",
                dtype="bfloat16",
            )

    def test_nothing_to_quantise(self) -> None:
        with pytest.raises(HandlerLoadError, match="Linear has no linear layers"):
            quantize_module(nn.Linear(2, 2), "int8_dynamic")

    def test_another_device(self) -> None:
        module = nn.Sequential(nn.ModuleList([nn.Linear(2, 2)])).to("meta")

        with pytest.raises(HandlerLoadError, match="int8_dynamic runs on the CPU only"):
            quantize_module(module, "int8_dynamic")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "auto"])
def test_dtypes(tiny_model: TinyModel, dtype: str) -> None:
    plain = load(tiny_model("bert", "sequence_classification"))
    handler = load(tiny_model("bert", "sequence_classification"), dtype=dtype)
    inputs = plain.task.encode([{"text": "the film"}, {"text": "not good at all"}]).inputs

    expected, actual = plain.runner(inputs)["logits"], handler.runner(inputs)["logits"]

    wanted = torch.float32 if dtype == "auto" else getattr(torch, dtype)
    assert {parameter.dtype for parameter in handler.model.parameters()} == {wanted}
    assert relative_error(expected, actual.float()) < (1e-5 if wanted is torch.float32 else 0.05)
