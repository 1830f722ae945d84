from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import TEXTS, ask, load
from tests.tiny_models import AUTO_CLASSES, DECODERS, ENCODERS

from marserve.archiver.errors import ConfigError, HandlerLoadError, MarserveError
from marserve.handlers.errors import RequestError

GREEDY = {"do_sample": False, "max_new_tokens": 6}
CASES = [
    (kind, task)
    for task in AUTO_CLASSES
    for kind in (DECODERS if task == "text_generation" else ENCODERS)
]


def options(task: str, **more: Any) -> dict[str, Any]:
    generation = {"generation": GREEDY} if task == "text_generation" else {}
    return {"mode": task, "max_length": 64, **generation, **more}


@pytest.mark.parametrize(("kind", "task"), CASES)
class TestEveryTask:
    def test_a_batch_answers_as_each_request_alone(
        self, tiny_model: TinyModel, kind: str, task: str
    ) -> None:
        handler = load(tiny_model(kind, task), **options(task))
        texts = [*TEXTS[task], TEXTS[task][0]]

        together = ask(handler, texts)

        assert together == [ask(handler, [text])[0] for text in texts]
        json.dumps(together)

    def test_a_malformed_request_fails_alone(
        self, tiny_model: TinyModel, kind: str, task: str
    ) -> None:
        handler = load(tiny_model(kind, task), **options(task))
        good = TEXTS[task][0]

        broken, answer, also_broken = ask(handler, [b"\xff\xfe", good, {"wrong": 1}])

        assert isinstance(broken, RequestError)
        assert isinstance(also_broken, RequestError)
        assert "wrong" in also_broken.message
        assert [answer] == ask(handler, [good])

    def test_explains_every_request_of_a_batch(
        self, tiny_model: TinyModel, kind: str, task: str
    ) -> None:
        handler = load(tiny_model(kind, task), **options(task, explain={"n_steps": 8}))

        results = ask(handler, [*TEXTS[task], [1]], explain=True)

        assert isinstance(results.pop(), RequestError)
        for text, result in zip(TEXTS[task], results, strict=True):
            alone = ask(handler, [text], explain=True)[0]
            assert alone["words"] == result["words"]
            for key, value in alone.items():
                if key.startswith("importances"):
                    assert len(value) == len(result["words"])
                    assert result[key] == pytest.approx(value, abs=1e-4)
                if key.startswith("delta"):
                    assert isinstance(value, float)


class TestAnswers:
    def test_a_sequence_gets_the_plain_label(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "sequence_classification"))

        answers = ask(handler, ["a good film", b"a good film", bytearray(b"a good film")])

        assert answers[0] in ("Accepted", "Not Accepted")
        assert answers[0] == answers[1] == answers[2]

    def test_top_k_gives_labels_and_probabilities(self, tiny_model: TinyModel) -> None:
        directory = tiny_model("bert", "sequence_classification")

        answers = ask(load(directory, top_k=5), ["a good film"])[0]

        assert next(iter(answers)) == ask(load(directory), ["a good film"])[0]
        assert sum(answers.values()) == pytest.approx(1.0)

    def test_tokens_come_with_their_labels(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "token_classification"))

        pairs = ask(handler, ["new york"])[0]

        assert [token for token, _ in pairs] == ["[CLS]", "new", "york", "[SEP]"]
        assert {label for _, label in pairs} <= {"O", "B-MISC", "I-MISC", "B-PER"}

    @pytest.mark.parametrize("kind", ENCODERS)
    def test_an_answer_is_a_piece_of_the_context(self, tiny_model: TinyModel, kind: str) -> None:
        handler = load(tiny_model(kind, "question_answering"))
        requests = [
            {"question": f"{word}?", "context": f"The {word} WAS good, in Néw  York ({word})."}
            for word in ("film", "movie", "it", "x")
        ]

        answers = ask(handler, requests)

        for request, answer in zip(requests, answers, strict=True):
            assert answer
            assert answer in request["context"]

    def test_without_a_label_file_the_models_own_names_serve(
        self, tiny_model: TinyModel, tmp_path: Path
    ) -> None:
        directory = copy(tiny_model("bert", "sequence_classification"), tmp_path)
        (directory / "index_to_name.json").unlink()

        assert ask(load(directory), ["a"])[0] in ("LABEL_0", "LABEL_1")

    def test_long_text_is_truncated(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "token_classification"), max_length=8)

        assert len(ask(handler, ["a " * 1000])[0]) == 8


class TestInputs:
    @pytest.mark.parametrize("captum_explanation", [True, False])
    @pytest.mark.parametrize(
        "body",
        [
            "the film",
            b'{"text": "the film"}',
            {"text": "the film"},
            "{'text': 'the film', 'target': 1}",
            "  {'text': 'the film', 'target': (1, 2)}\n",
        ],
    )
    def test_every_form_of_a_text_is_the_same_request(
        self, tiny_model: TinyModel, body: Any, captum_explanation: bool
    ) -> None:
        directory = tiny_model("bert", "token_classification")
        handler = load(directory, captum_explanation=captum_explanation)

        assert ask(handler, ["the film"]) == ask(handler, [body])

    def test_data_wins_over_body_and_a_form_has_fields(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "token_classification"))
        handler.context.begin(["a", "b"], [{}, {}])

        rows = [{"data": b"the film", "body": b"x"}, {"text": bytearray(b"the film")}]

        assert ask(handler, ["the film"]) * 2 == handler.handle(rows, handler.context)

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"\xff", "UTF-8"),
            ("{'text': open('x')}", "neither JSON"),
            ('{"text": "unfinished', "neither JSON"),
            ({"text": 3}, '"text" is a value of type int'),
            ({"txt": "a"}, 'no "text" (found: txt)'),
            ([["a"]], "a list"),
            (3, "type int"),
            ("\ud800", "surrogate"),
            ("{" * 5000, "neither JSON"),
        ],
    )
    def test_what_is_wrong_is_said(self, tiny_model: TinyModel, body: Any, message: str) -> None:
        handler = load(tiny_model("bert", "sequence_classification"))

        (error,) = ask(handler, [body])

        assert isinstance(error, RequestError)
        assert error.status == 400
        assert message in error.message

    def test_a_question_needs_a_context(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "question_answering"))

        errors = ask(handler, ["text", {"question": "q"}, {"question": "q", "context": "  "}])

        assert ["plain text", '"context"', "empty"] == [
            next(part for part in ("plain text", "empty", '"context"') if part in error.message)
            for error in errors
        ]

    def test_a_question_longer_than_the_limit_is_truncated(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "question_answering"), max_length=16)

        (answer,) = ask(handler, [{"question": "is it " * 50, "context": "the film " * 9}])

        assert isinstance(answer, str)


class TestExplanations:
    def test_shapes(self, tiny_model: TinyModel) -> None:
        sequence = load(tiny_model("bert", "sequence_classification"))
        token = load(tiny_model("bert", "token_classification"))
        answer = load(tiny_model("bert", "question_answering"))
        text = load(tiny_model("gpt2", "text_generation"))

        def keys(handler: Any, body: Any) -> list[str]:
            return list(ask(handler, [body], explain=True)[0])

        plain = ["words", "importances", "delta"]
        assert plain == keys(sequence, {"text": "a film", "target": 1})
        assert plain == keys(token, "{'text': 'a film', 'target': (1, 2)}")
        assert [*plain, "target"] == keys(token, "a film")
        assert [*plain, "target"] == keys(text, "a film")
        assert [
            "words",
            "importances_answer_start",
            "importances_answer_end",
            "delta_start",
            "delta_end",
        ] == keys(answer, TEXTS["question_answering"][0])

    def test_words_of_question_and_context(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "question_answering"))

        (result,) = ask(handler, [{"question": "who", "context": "the Film"}], explain=True)

        assert ["[CLS]", "who", "[SEP]", "the", "film", "[SEP]"] == result["words"]

    def test_the_target_is_the_predicted_class_unless_named(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "sequence_classification"))
        predicted = ask(handler, ["a film"])[0]
        labels = ["Not Accepted", "Accepted"]
        index = labels.index(predicted)
        other = 1 - index

        default, named, by_index, against = ask(
            handler,
            [
                "a film",
                {"text": "a film", "target": predicted},
                {"text": "a film", "target": index},
                {"text": "a film", "target": other},
            ],
            explain=True,
        )

        assert default["importances"] == pytest.approx(named["importances"], abs=1e-5)
        assert default["importances"] == pytest.approx(by_index["importances"], abs=1e-5)
        assert default["importances"] != pytest.approx(against["importances"], abs=1e-2)

    @pytest.mark.parametrize(
        ("kind", "task", "target"),
        [
            ("bert", "sequence_classification", 2),
            ("bert", "sequence_classification", [0]),
            ("bert", "sequence_classification", "no such label"),
            ("bert", "token_classification", 1),
            ("bert", "token_classification", [99, 1]),
            ("bert", "token_classification", [1, 9]),
            ("gpt2", "text_generation", 10**6),
        ],
    )
    def test_a_wrong_target_fails_alone(
        self, tiny_model: TinyModel, kind: str, task: str, target: Any
    ) -> None:
        handler = load(tiny_model(kind, task))

        error, result = ask(handler, [{"text": "a film", "target": target}, "a film"], explain=True)

        assert isinstance(error, RequestError)
        assert '"target"' in error.message
        assert "words" in result

    def test_a_traced_model_is_explained_by_the_weights_beside_it(
        self, tiny_model: TinyModel, tmp_path: Path
    ) -> None:
        directory = tiny_model("bert", "sequence_classification")
        alone = copy(directory, tmp_path)
        (alone / "model.safetensors").unlink()

        expected = ask(load(directory), ["a film"], explain=True)
        actual = ask(load(directory, save_mode="torchscript"), ["a film"], explain=True)

        assert expected == actual
        with pytest.raises(RequestError, match="weights") as raised:
            ask(load(alone, save_mode="torchscript"), ["a film"], explain=True)
        assert raised.value.status == 501


class TestGeneration:
    def test_the_prompt_is_part_of_the_text(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("gpt2", "text_generation"), max_length=12)

        (text,) = ask(handler, [{"text": "the film", "do_sample": False, "max_new_tokens": 4}])

        assert text.startswith("the film")
        assert len(text) > len("the film")

    @pytest.mark.parametrize("kind", DECODERS)
    def test_a_seeded_text_does_not_depend_on_its_batch(
        self, tiny_model: TinyModel, kind: str
    ) -> None:
        handler = load(tiny_model(kind, "text_generation"), max_length=32)
        seeded = {"text": "the film", "seed": 3, "max_new_tokens": 12, "temperature": 1.5}

        alone = ask(handler, [seeded])[0]
        rows = [{**seeded, "seed": 4}, "a much longer prompt than that", seeded]

        assert alone == ask(handler, rows)[2]
        assert alone != ask(handler, rows)[0]

    def test_without_parameters_it_samples(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("gpt2", "text_generation"), max_length=24)

        assert len(set(ask(handler, ["the film"] * 8))) > 1

    def test_each_request_has_its_own_length(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("llama", "text_generation"), generation={"do_sample": False})

        texts = ask(handler, [{"text": "ab", "max_new_tokens": n} for n in (1, 3, 9)])

        assert texts[2].startswith(texts[1][:2])
        lengths = [len(handler.tokenizer(text)["input_ids"]) for text in texts]
        assert sorted(lengths) == lengths

    def test_a_text_ends_where_the_model_does(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("gpt2", "text_generation"))

        (text,) = ask(handler, [{"text": "a" * 600, "max_new_tokens": 10**6, "seed": 1}])

        assert text.startswith("a" * 511)

    @pytest.mark.parametrize(
        ("parameter", "value"),
        [
            ("temperature", -1),
            ("temperature", "hot"),
            ("top_p", 0),
            ("top_p", float("nan")),
            ("top_k", 1.5),
            ("max_new_tokens", 0),
            ("max_new_tokens", True),
            ("do_sample", 1),
            ("seed", -1),
            ("max_tokens", 3),
        ],
    )
    def test_a_wrong_parameter_is_named(
        self, tiny_model: TinyModel, parameter: str, value: Any
    ) -> None:
        handler = load(tiny_model("gpt2", "text_generation"), max_length=16)

        error, text = ask(handler, [{"text": "a", parameter: value}, "a"])

        assert isinstance(error, RequestError)
        assert parameter in error.message
        assert isinstance(text, str)

    def test_an_empty_prompt_is_refused(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("gpt2", "text_generation"), max_length=16)

        (error,) = ask(handler, [""])

        assert "empty" in error.message

    def test_a_wrong_default_is_found_at_load(self, tiny_model: TinyModel) -> None:
        with pytest.raises(HandlerLoadError, match=r"generation.*top_p"):
            load(tiny_model("gpt2", "text_generation"), generation={"top_p": 2})


class TestLoading:
    @pytest.mark.parametrize(
        ("missing", "named"),
        [
            (["config.json"], "config.json"),
            (["model.safetensors"], "model.safetensors"),
            (["tokenizer.json", "tokenizer_config.json"], "tokenizer.json"),
        ],
    )
    def test_a_missing_file_is_named(
        self, tiny_model: TinyModel, tmp_path: Path, missing: list[str], named: str
    ) -> None:
        directory = copy(tiny_model("bert", "sequence_classification"), tmp_path)
        for name in missing:
            (directory / name).unlink()

        with pytest.raises(HandlerLoadError, match=named):
            load(directory, mode="sequence_classification")

    def test_a_head_that_was_never_trained_is_refused(self, tiny_model: TinyModel) -> None:
        with pytest.raises(HandlerLoadError, match=r"qa_outputs.*BertForSequenceClassification"):
            load(tiny_model("bert", "sequence_classification"), mode="question_answering")

    def test_damaged_weights_are_refused(self, tiny_model: TinyModel, tmp_path: Path) -> None:
        directory = copy(tiny_model("bert", "sequence_classification"), tmp_path)
        (directory / "model.safetensors").write_bytes(b"not weights")

        with pytest.raises(HandlerLoadError, match="cannot be loaded"):
            load(directory)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"model_parallel": True, "quantization": "int8_dynamic"}, "model_parallel"),
            ({"hardware": "neuronx"}, "neuronx"),
            ({"num_labels": 3}, "num_labels: 3"),
            ({"max_length": 513}, "512"),
            ({"explain": {"method": "magic"}}, "magic"),
            ({"attn_implementation": "no_such"}, "no_such"),
        ],
    )
    def test_what_cannot_be_done_is_an_error(
        self, tiny_model: TinyModel, settings: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(MarserveError, match=message):
            load(tiny_model("bert", "sequence_classification"), **settings)

    def test_with_nobody_to_share_with_there_is_one_process(
        self, tiny_model: TinyModel, caplog: pytest.LogCaptureFixture
    ) -> None:
        directory, texts = tiny_model("bert", "sequence_classification"), ["a film"]

        assert ask(load(directory), texts) == ask(load(directory, model_parallel=True), texts)
        assert "no second GPU to share with" in caplog.text

    def test_a_wrong_setting_is_an_error(self, tiny_model: TinyModel) -> None:
        with pytest.raises(ConfigError, match="mode"):
            load(tiny_model("bert", "sequence_classification"), mode="poetry")

    def test_modes_that_exclude_each_other(self, tiny_model: TinyModel) -> None:
        compiled = {"pt2": {"compile": {"enable": True}}}

        with pytest.raises(ConfigError, match=r"compile.*save_mode: torchscript"):
            load(tiny_model("bert", "sequence_classification"), compiled, save_mode="torchscript")
        with pytest.raises(ConfigError, match="BetterTransformer"):
            load(tiny_model("gpt2", "text_generation"), BetterTransformer=True)

    def test_labels_that_do_not_cover_the_classes(
        self, tiny_model: TinyModel, tmp_path: Path
    ) -> None:
        directory = copy(tiny_model("bert", "sequence_classification"), tmp_path)
        (directory / "index_to_name.json").write_text('{"0": "no"}')

        with pytest.raises(HandlerLoadError, match="names no class 1"):
            load(directory)

    def test_weights_under_a_name_of_their_own(self, tiny_model: TinyModel, tmp_path: Path) -> None:
        original = tiny_model("bert", "sequence_classification")
        directory = copy(original, tmp_path)
        (directory / "model.safetensors").rename(directory / "weights.safetensors")

        from tests.handlers.serving import context

        from marserve.handlers.transformer import TransformerHandler

        handler = TransformerHandler()
        handler.initialize(context(directory, serializedFile="weights.safetensors"))

        assert ask(load(original), ["a film"]) == ask(handler, ["a film"])

    def test_pickled_weights_load_as_tensors_only(
        self, tiny_model: TinyModel, tmp_path: Path
    ) -> None:
        import safetensors.torch
        import torch

        original = tiny_model("bert", "sequence_classification")
        directory = copy(original, tmp_path)
        state = safetensors.torch.load_file(directory / "model.safetensors")
        (directory / "model.safetensors").unlink()
        torch.save(state, directory / "pytorch_model.bin")

        assert ask(load(original), ["a film"]) == ask(load(directory), ["a film"])

        torch.save({"weights": Path("x")}, directory / "pytorch_model.bin")
        with pytest.raises(HandlerLoadError):
            load(directory)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "auto"])
    def test_dtype(self, tiny_model: TinyModel, dtype: str) -> None:
        handler = load(tiny_model("bert", "sequence_classification"), dtype=dtype)

        expected = "float32" if dtype == "auto" else dtype
        assert f"torch.{expected}" == str(handler.model.dtype)
        assert ask(handler, ["a film"])[0] in ("Accepted", "Not Accepted")
        assert "words" in ask(handler, ["a film"], explain=True)[0]

    def test_weights_stay_mapped_from_the_file(self, tiny_model: TinyModel) -> None:
        directory = tiny_model("bert", "sequence_classification")
        handler = load(directory)

        addresses = [p.data_ptr() for p in handler.model.parameters()]
        mapped = [
            tuple(int(part, 16) for part in line.split()[0].split("-"))
            for line in Path("/proc/self/maps").read_text().splitlines()
            if line.endswith(str(directory / "model.safetensors"))
        ]

        assert all(any(a <= address < b for a, b in mapped) for address in addresses)


def copy(directory: Path, target: Path) -> Path:
    return Path(shutil.copytree(directory, target / "copy"))
