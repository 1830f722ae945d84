"""Methods of explanation, in every mode: the same words, in the same order."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.handlers.conftest import TinyModel
from tests.handlers.exporting import Exported, exported, serve
from tests.handlers.serving import TEXTS, ask, load
from tests.handlers.test_transformer import CASES

from marserve.archiver.errors import ConfigError
from marserve.handlers.errors import RequestError
from marserve.handlers.explain import Explainer, ExplanationTimeoutError

__all__ = ["exported"]

METHODS = ("layer_integrated_gradients", "saliency", "occlusion")
TEXT = "it was bad, and so long that i left the new york"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("kind", "task"), CASES)
def test_every_method_explains_a_batch_as_each_request_alone(
    tiny_model: TinyModel, kind: str, task: str, method: str
) -> None:
    options = {"method": method, "n_steps": 8, "internal_batch_size": 5}
    handler = load(tiny_model(kind, task), explain=options)

    results = ask(handler, TEXTS[task], explain=True)

    for text, result in zip(TEXTS[task], results, strict=True):
        (alone,) = ask(handler, [text], explain=True)
        assert list(alone) == list(result)
        for key, value in alone.items():
            expected = pytest.approx(value, abs=1e-4) if "importances" in key else value
            assert key.startswith("delta") or expected == result[key]


def test_occlusion_is_the_fall_of_the_score(tiny_model: TinyModel) -> None:
    handler = load(tiny_model("bert", "sequence_classification"))
    module: Any = handler.model
    explainer = Explainer(handler.runner, None, handler.tokenizer.pad_token_id, method="occlusion")
    batch = handler.task.encode([{"text": "a good film"}], offsets=True)

    attribution = explainer.attribute(
        batch.inputs, explainer.baseline(batch), lambda outputs: outputs["logits"][:, 1]
    )

    whole = module(**batch.inputs).logits[0, 1].item()
    expected = [0.0]
    for at in (1, 2, 3):
        ids = batch.inputs["input_ids"].clone()
        ids[0, at] = handler.tokenizer.pad_token_id
        expected.append(whole - module(**{**batch.inputs, "input_ids": ids}).logits[0, 1].item())
    assert [*expected, 0.0] == pytest.approx(attribution.scores[0].tolist(), abs=1e-5)


def test_saliency_is_the_length_of_the_gradient(tiny_model: TinyModel) -> None:
    handler = load(tiny_model("gpt2", "text_generation"), explain={"method": "saliency"})
    module: Any = handler.model

    (result,) = ask(handler, ["the film"], explain=True)

    ids = handler.task.encode([{"text": "the film"}]).inputs["input_ids"]
    vectors = module.transformer.wte(ids).detach().requires_grad_(True)
    logits = module(inputs_embeds=vectors).logits[0, -1]
    (gradient,) = torch.autograd.grad(logits.max(), vectors)
    expected = gradient[0].norm(dim=-1)
    assert (expected / expected.norm()).tolist() == pytest.approx(result["importances"], abs=1e-5)


class TestModes:
    @pytest.mark.parametrize("method", METHODS)
    def test_one_text_in_three_modes_has_the_same_words_in_the_same_order(
        self, tiny_model: TinyModel, method: str
    ) -> None:
        directory = tiny_model("bert", "sequence_classification")
        explain = {"method": method, "words": True}
        handlers = [
            load(directory, explain=explain),
            load(directory, explain=explain, save_mode="torchscript"),
            load(directory, explain=explain, BetterTransformer=True),
        ]

        results = [ask(handler, [TEXT], explain=True)[0] for handler in handlers]

        for result in results[1:]:
            assert_same_order(results[0], result)

    @pytest.mark.parametrize(
        ("kind", "task", "method"),
        [
            ("distilbert", "token_classification", "layer_integrated_gradients"),
            ("distilbert", "token_classification", "occlusion"),
            ("gpt2", "text_generation", "occlusion"),
        ],
    )
    def test_exported_models_are_explained_as_eager_ones(
        self, exported: Exported, kind: str, task: str, method: str
    ) -> None:
        explain = {"method": method, "words": True, "n_steps": 8}
        sources = ("pretrained", "torchscript", "onnx")
        handlers = [serve(exported(kind, task, source), explain=explain) for source in sources]

        eager, *others = [ask(handler, TEXTS[task], explain=True) for handler in handlers]

        for results in others:
            for expected, result in zip(eager, results, strict=True):
                assert_same_order(expected, result)
                assert expected["words"] == result["words"]
                assert expected["target"] == result["target"]

    def test_gradients_say_that_they_load_eager_weights(
        self, tiny_model: TinyModel, caplog: pytest.LogCaptureFixture
    ) -> None:
        directory = tiny_model("bert", "sequence_classification")
        handler = load(directory, save_mode="torchscript", explain={"n_steps": 4})

        ask(handler, [TEXT], explain=True)
        ask(handler, [TEXT], explain=True)

        (message,) = [record.getMessage() for record in caplog.records]
        assert "eager weights" in message
        assert "torchscript" in message

    def test_without_eager_weights_the_remedy_is_named(
        self, tiny_model: TinyModel, tmp_path: Path
    ) -> None:
        source = tiny_model("bert", "sequence_classification")
        directory = Path(shutil.copytree(source, tmp_path / "model"))
        (directory / "model.safetensors").unlink()

        (refused,) = _refused(load(directory, save_mode="torchscript"), TEXT)
        occluded = load(directory, save_mode="torchscript", explain={"method": "occlusion"})

        assert refused.status == 501
        assert "occlusion" in refused.message
        (result,) = ask(occluded, [TEXT], explain=True)
        (eager,) = ask(load(source, explain={"method": "occlusion"}), [TEXT], explain=True)
        assert eager["importances"] == pytest.approx(result["importances"], abs=1e-4)


class TestTimeLimit:
    @pytest.mark.parametrize("method", METHODS)
    def test_is_an_error_of_its_own(self, tiny_model: TinyModel, method: str) -> None:
        handler = load(
            tiny_model("bert", "question_answering"),
            explain={"method": method, "time_limit_ms": 1, "internal_batch_size": 1},
        )
        request = {"question": "where?", "context": "the film was good " * 40}

        (refused,) = _refused(handler, request)

        assert isinstance(refused, ExplanationTimeoutError)
        assert refused.status == 504
        assert "time_limit_ms" in refused.message

    def test_leaves_the_model_as_it_was(self, tiny_model: TinyModel) -> None:
        directory = tiny_model("bert", "sequence_classification")
        handler = load(directory, explain={"time_limit_ms": 1})
        (before,) = ask(handler, [TEXT])
        _refused(handler, TEXT * 9)

        (after,) = ask(handler, [TEXT])

        module: Any = handler.model
        assert before == after
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())

    def test_a_generous_one_changes_nothing(self, tiny_model: TinyModel) -> None:
        directory = tiny_model("bert", "sequence_classification")
        limited = load(directory, explain={"time_limit_ms": 600_000})

        assert ask(load(directory), [TEXT], explain=True) == ask(limited, [TEXT], explain=True)


@pytest.mark.parametrize(
    "explain", [{"method": "guessing"}, {"time_limit_ms": 0}, {"words": "many"}]
)
def test_wrong_settings_are_refused(tiny_model: TinyModel, explain: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"handler\.explain"):
        load(tiny_model("bert", "sequence_classification"), explain=explain)


def assert_same_order(expected: dict[str, Any], result: dict[str, Any]) -> None:
    """Words that differ by more than engines round off must be in the same order."""
    assert expected["merged_words"] == result["merged_words"]
    right, found = expected["merged_importances"], result["merged_importances"]
    assert right == pytest.approx(found, abs=1e-3)
    places = range(len(right))
    pairs = [(i, j) for i in places for j in places if right[i] > right[j] + 1e-3]
    assert pairs
    assert all(found[i] > found[j] for i, j in pairs)


def _refused(handler: Any, body: Any) -> list[RequestError]:
    """What a worker would answer: it hands an exception to every request of the batch."""
    try:
        results: list[RequestError] = ask(handler, [body], explain=True)
        return results
    except RequestError as error:
        return [error]
