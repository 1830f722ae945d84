from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import TEXTS, ask, context, load
from tests.handlers.test_transformer import CASES, options

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.generation.loop import generate
from marserve.handlers.generation.sampling import SamplingParams
from marserve.handlers.runners.length_sorted import LengthSortedRunner
from marserve.handlers.transformer import TransformerHandler

GRAPHS = {"pt2": {"compile": {"enable": True, "backend": "eager"}}}  # traced, then run as it is


def refused(task: str, mode: str) -> bool:
    """Sorting does nothing for generation, and asking for it there is an error."""
    return task == "text_generation" and "length_sorted" in mode


MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "torchscript": ({}, {"save_mode": "torchscript"}),
    "length_sorted": ({}, {"BetterTransformer": True}),
}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    """Each compiled model starts with its own count of recompilations."""
    yield
    torch.compiler.reset()


ONE_OF_A_KIND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "torchscript, length_sorted": ({}, {"BetterTransformer": True, "save_mode": "torchscript"}),
    "eager attention": ({}, {"attn_implementation": "eager"}),
}
MATRIX = [
    *((*case, mode) for case in CASES for mode in MODES if not refused(case[1], mode)),
    *(("bert", "question_answering", mode) for mode in ONE_OF_A_KIND),
]


@pytest.mark.parametrize(("kind", "task", "mode"), MATRIX)
def test_every_mode_answers_as_eager_does(
    tiny_model: TinyModel, kind: str, task: str, mode: str
) -> None:
    config, extra = {**MODES, **ONE_OF_A_KIND}[mode]
    directory = tiny_model(kind, task)
    eager = load(directory, **options(task))
    other = load(directory, config, **options(task, **extra))
    texts = [TEXTS[task][at % 2] for at in range(5)]

    assert ask(eager, texts) == ask(other, texts)
    assert ask(eager, texts[:1]) == ask(other, texts[:1])
    if task != "text_generation":
        assert_equal_outputs(eager, other, texts)


def assert_equal_outputs(eager: Any, other: Any, texts: list[Any]) -> None:
    tokens = eager.task.encode([eager.task.parse(text) for text in texts])
    inputs = {name: tokens.inputs[name] for name in other.runner.input_names}
    mask = tokens.inputs["attention_mask"].bool()

    expected, actual = eager.runner(inputs), other.runner(inputs)

    assert list(expected) == list(actual)
    for name, values in expected.items():
        kept = mask if eager.task.per_token else slice(None)
        torch.testing.assert_close(values[kept], actual[name][kept], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "task", "sort"),
    [
        ("bert", "sequence_classification", False),
        ("distilbert", "token_classification", True),
        ("roberta", "question_answering", False),
        ("gpt2", "text_generation", False),
    ],
)
def test_compiled_answers_as_eager_does(
    tiny_model: TinyModel, kind: str, task: str, sort: bool
) -> None:
    eager = load(tiny_model(kind, task), **options(task))
    compiled = load(tiny_model(kind, task), GRAPHS, **options(task, BetterTransformer=sort))
    texts = [TEXTS[task][at % 2] for at in range(5)]

    assert ask(eager, texts) == ask(compiled, texts)
    assert ask(eager, texts[:1]) == ask(compiled, texts[:1])
    if task != "text_generation":
        assert_equal_outputs(eager, compiled, texts)
        assert ask(eager, texts[:1], explain=True) == ask(compiled, texts[:1], explain=True)


class TestLengthSorted:
    def test_mixed_lengths_keep_their_order(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "token_classification"))
        runner = LengthSortedRunner(handler.runner, per_token=True)
        lengths = [3, 40, 1, 7, 33, 2, 2, 50, 12]
        tokens = handler.task.encode([{"text": "film " * length} for length in lengths])

        expected = handler.runner(tokens.inputs)["logits"]
        actual = runner(tokens.inputs)["logits"]

        for row, length in enumerate(lengths):
            torch.testing.assert_close(
                expected[row, : length + 2], actual[row, : length + 2], atol=1e-5, rtol=1e-5
            )

    def test_one_value_a_row(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("roberta", "sequence_classification"))
        runner = LengthSortedRunner(handler.runner, per_token=False)
        texts = [{"text": "film " * length} for length in (1, 20, 3, 2, 11)]
        inputs = handler.task.encode(texts).inputs

        torch.testing.assert_close(
            handler.runner(inputs)["logits"], runner(inputs)["logits"], atol=1e-5, rtol=1e-5
        )


class TestCompiled:
    def test_an_unknown_backend_is_named(self, tiny_model: TinyModel) -> None:
        with pytest.raises(HandlerLoadError, match=r"no_such_backend.*inductor"):
            load(
                tiny_model("bert", "sequence_classification"),
                {"pt2": {"compile": {"enable": True, "backend": "no_such_backend"}}},
            )

    def test_an_unknown_option_is_an_error(self, tiny_model: TinyModel) -> None:
        with pytest.raises(HandlerLoadError, match="speed"):
            load(
                tiny_model("bert", "sequence_classification"),
                {"pt2": {"compile": {"enable": True, "backend": "eager", "speed": 11}}},
            )


class TestTorchScript:
    def test_no_traced_model(self, tiny_model: TinyModel, tmp_path: Path) -> None:
        from tests.handlers.test_transformer import copy

        directory = copy(tiny_model("bert", "sequence_classification"), tmp_path)
        torch.save({"weight": torch.ones(1)}, directory / "traced_model.pt")

        with pytest.raises(HandlerLoadError, match=r"traced_model\.pt: is no TorchScript"):
            load(directory, save_mode="torchscript")

    def test_a_fixed_shape_is_found_at_load(self, tiny_model: TinyModel, tmp_path: Path) -> None:
        import warnings

        from tests.handlers.test_transformer import copy

        class Fixed(torch.nn.Module):
            def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
                return (input_ids.float().reshape(1, 32) @ torch.ones(32, 2),)

        directory = copy(tiny_model("bert", "sequence_classification"), tmp_path)
        ids = torch.ones((1, 32), dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.trace(Fixed(), (ids, ids)), directory / "traced_model.pt")

        with pytest.raises(HandlerLoadError, match="1 rows of 8 tokens"):
            load(directory, save_mode="torchscript")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("kind", "task"), CASES)
def test_a_gpu_answers_as_the_cpu_does(tiny_model: TinyModel, kind: str, task: str) -> None:
    cpu = load(tiny_model(kind, task), **options(task))
    gpu = TransformerHandler()
    settings = {"handler": options(task)}
    gpu.initialize(context(tiny_model(kind, task), settings, gpu_id=0))

    assert ask(cpu, TEXTS[task]) == ask(gpu, TEXTS[task])
    for expected, actual in zip(
        ask(cpu, TEXTS[task], explain=True), ask(gpu, TEXTS[task], explain=True), strict=True
    ):
        assert expected["words"] == actual["words"]


class TestDecoders:
    @pytest.mark.parametrize("kind", ["gpt2", "llama"])
    def test_greedy_text_is_that_of_transformers(self, tiny_model: TinyModel, kind: str) -> None:
        handler = load(tiny_model(kind, "text_generation"))
        tokens = handler.task.encode([{"text": "the film"}])
        end = handler.tokenizer.eos_token_id

        expected = handler.model.generate(
            **tokens.inputs, max_new_tokens=20, do_sample=False, pad_token_id=end
        )
        (actual,) = generate(
            handler.runner.decoder(),
            tokens.inputs,
            [SamplingParams(max_new_tokens=20, do_sample=False)],
            {end},
        )

        new = expected[0, tokens.inputs["input_ids"].shape[1] :].tolist()
        assert actual == (new[: new.index(end)] if end in new else new)
