"""The tasks beyond the first four: their answers are those of transformers' own pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import ask, load
from tests.tiny_models import ENCODERS

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.transformer import TransformerHandler

LIBRARY: Any = transformers  # its own types are about how it is called by name
TEXTS = ["a good film", "it was bad, and so long that i left the new york", "the"]


def pipeline(task: str, handler: TransformerHandler) -> Any:
    return LIBRARY.pipeline(task, model=handler.model, tokenizer=handler.tokenizer)


@pytest.mark.parametrize("kind", ENCODERS)
class TestFeatureExtraction:
    def test_vectors_are_those_of_the_pipeline(self, tiny_model: TinyModel, kind: str) -> None:
        directory = tiny_model(kind, "sequence_classification")
        handler = load(directory, mode="feature_extraction", pooling="none")

        answers = ask(handler, TEXTS)

        for text, answer in zip(TEXTS, answers, strict=True):
            (expected,) = pipeline("feature-extraction", handler)(text)
            torch.testing.assert_close(
                torch.tensor(expected), torch.tensor(answer), atol=1e-5, rtol=1e-4
            )

    def test_a_text_has_the_mean_of_its_tokens(self, tiny_model: TinyModel, kind: str) -> None:
        directory = tiny_model(kind, "sequence_classification")
        tokens = ask(load(directory, mode="feature_extraction", pooling="none"), TEXTS)
        means = [torch.tensor(each).mean(0) for each in tokens]

        plain = ask(load(directory, mode="feature_extraction"), TEXTS)
        unit = ask(load(directory, mode="feature_extraction", normalize=True), TEXTS)
        first = ask(load(directory, mode="feature_extraction", pooling="cls"), TEXTS)

        for row, mean in enumerate(means):
            torch.testing.assert_close(mean, torch.tensor(plain[row]), atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(
                mean / mean.norm(), torch.tensor(unit[row]), atol=1e-5, rtol=1e-4
            )
            assert first[row] == pytest.approx(tokens[row][0], abs=1e-5)

    def test_similarity_is_the_cosine_of_the_vectors(
        self, tiny_model: TinyModel, kind: str
    ) -> None:
        directory = tiny_model(kind, "sequence_classification")
        unit = torch.tensor(ask(load(directory, mode="feature_extraction", normalize=True), TEXTS))
        handler = load(directory, mode="sentence_similarity")
        request = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
        short = {"source_sentence": TEXTS[1], "sentences": [TEXTS[1]]}

        answer, refused, same = ask(handler, [request, {"sentences": ["a"]}, short])

        assert answer == pytest.approx((unit[1:] @ unit[0]).tolist(), abs=1e-5)
        assert isinstance(refused, RequestError)
        assert same == pytest.approx([1.0])

    def test_many_sentences_run_in_parts(self, tiny_model: TinyModel, kind: str) -> None:
        handler = load(tiny_model(kind, "sequence_classification"), mode="sentence_similarity")
        others = [f"the {'good ' * (at % 9)}film" for at in range(150)]

        (answer,) = ask(handler, [{"source_sentence": "the film", "sentences": others}])

        assert len(answer) == len(others)
        (alone,) = ask(handler, [{"source_sentence": "the film", "sentences": others[-2:]}])
        assert answer[-2:] == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("kind", ENCODERS)
class TestFillMask:
    def texts(self, handler: TransformerHandler) -> list[str]:
        mask = handler.tokenizer.mask_token
        return [f"a {mask} film", f"{mask} was bad, so {mask} left the new york"]

    def test_answers_are_those_of_the_pipeline(self, tiny_model: TinyModel, kind: str) -> None:
        handler = load(tiny_model(kind, "fill_mask"))

        answers = ask(handler, self.texts(handler))

        expected = pipeline("fill-mask", handler)(self.texts(handler))
        assert _rounded(expected) == _rounded(answers)

    def test_a_request_says_how_many(self, tiny_model: TinyModel, kind: str) -> None:
        handler = load(tiny_model(kind, "fill_mask"), top_k=2)
        text = self.texts(handler)[0]

        two, one, none, no_gap = ask(
            handler, [text, {"text": text, "top_k": 1}, {"text": text, "top_k": 0}, "a film"]
        )

        assert two[:1] == one
        assert len(two) == 2
        assert isinstance(none, RequestError)
        assert handler.tokenizer.mask_token in no_gap.message

    def test_the_best_token_is_explained(self, tiny_model: TinyModel, kind: str) -> None:
        handler = load(tiny_model(kind, "fill_mask"), explain={"n_steps": 8})
        text = self.texts(handler)[0]

        (result,) = ask(handler, [text], explain=True)

        ((best, *_),) = ask(handler, [text])
        assert handler.tokenizer.convert_ids_to_tokens(best["token"]) == result["target"]
        assert len(result["words"]) == len(result["importances"])


class TestZeroShot:
    @pytest.mark.parametrize("kind", ENCODERS)
    @pytest.mark.parametrize("names", [["no", "yes"], ["entailment", "no"], ["no", "Entails"]])
    @pytest.mark.parametrize("multi", [False, True])
    def test_answers_are_those_of_the_pipeline(
        self, tiny_model: TinyModel, tmp_path: Path, kind: str, names: list[str], multi: bool
    ) -> None:
        source = tiny_model(kind, "sequence_classification")
        directory = _renamed(source, tmp_path / "model", names)
        handler = load(directory, mode="zero_shot_classification")
        labels = ["film", "new york", "bad and good"]
        more = {"hypothesis_template": "It is {}!", "multi_label": multi}
        requests = [{"text": text, "candidate_labels": labels, **more} for text in TEXTS]

        answers = ask(handler, requests)

        ask_pipeline = pipeline("zero-shot-classification", handler)
        for text, answer in zip(TEXTS, answers, strict=True):
            expected = ask_pipeline(text, labels, **more)
            assert (expected["sequence"], expected["labels"]) == (
                answer["sequence"],
                answer["labels"],
            )
            assert expected["scores"] == pytest.approx(answer["scores"], abs=1e-5)

    def test_a_malformed_request_fails_alone(self, tiny_model: TinyModel) -> None:
        directory = tiny_model("bert", "sequence_classification")
        handler = load(directory, mode="zero_shot_classification")
        good = {"text": "a film", "candidate_labels": "film, new york"}
        bad = [
            "a film",
            {"text": "a"},
            {**good, "candidate_labels": []},
            {**good, "candidate_labels": [1]},
            {**good, "hypothesis_template": "no place"},
            {**good, "multi_label": "yes"},
        ]

        answer, *refused = ask(handler, [good, *bad])

        assert {"film", "new york"} == set(answer["labels"])
        assert all(isinstance(each, RequestError) for each in refused)

    def test_the_best_label_is_explained(self, tiny_model: TinyModel) -> None:
        directory = tiny_model("bert", "sequence_classification")
        options: dict[str, Any] = {"mode": "zero_shot_classification", "explain": {"n_steps": 8}}
        handler = load(directory, **options)
        requests = [
            {"text": "a film", "candidate_labels": ["film", "new york"]},
            {"text": "it was bad", "candidate_labels": ["good", "bad", "where"]},
        ]

        results = ask(handler, requests, explain=True)

        assert [answer["labels"][0] for answer in ask(handler, requests)] == [
            result["target"] for result in results
        ]
        alone = [ask(handler, [request], explain=True)[0] for request in requests]
        for result, single in zip(results, alone, strict=True):
            assert result["importances"] == pytest.approx(single["importances"], abs=1e-4)


def test_a_task_without_explanations_says_so(tiny_model: TinyModel) -> None:
    handler = load(tiny_model("bert", "sequence_classification"), mode="feature_extraction")

    with pytest.raises(RequestError, match="no explanations") as refused:
        ask(handler, ["a film"], explain=True)

    assert refused.value.status == 501


def test_filling_gaps_needs_a_mask_token(tiny_model: TinyModel, tmp_path: Path) -> None:
    directory = _copied(tiny_model("bert", "fill_mask"), tmp_path / "model")
    path = directory / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["mask_token"]
    path.write_text(json.dumps(settings))

    with pytest.raises(HandlerLoadError, match="mask token"):
        load(directory)


def _copied(source: Path, target: Path) -> Path:
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def _renamed(source: Path, target: Path, names: list[str]) -> Path:
    directory = _copied(source, target)
    config = json.loads((directory / "config.json").read_text())
    config["id2label"] = {str(at): name for at, name in enumerate(names)}
    config["label2id"] = {name: at for at, name in enumerate(names)}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return pytest.approx(value, abs=1e-5)
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
