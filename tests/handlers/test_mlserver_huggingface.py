"""MLServer's Hugging Face runtime in this process: every kind of task, joined calls, ONNX."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests import media_models, tiny_models

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.mlserver.huggingface.codecs import picture
from marserve.handlers.mlserver.huggingface.runtime import HuggingFaceRuntime
from marserve.handlers.mlserver.settings import ModelSettings
from marserve.handlers.mlserver.types import (
    InferenceRequest,
    Parameters,
    RequestInput,
    TensorData,
)

TEXT, OTHER = "the movie was good", "what a bad film this is in new york"
MODELS = {
    "classes": ("bert", "sequence_classification"),
    "tokens": ("bert", "token_classification"),
    "answers": ("bert", "question_answering"),
    "gaps": ("bert", "fill_mask"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name, (kind, task) in MODELS.items():
        tiny_models.build(kind, task, root / name)
    media_models.save("t5", root / "words")
    return root


def tensor(name: str, data: list[Any], content_type: str | None = None) -> RequestInput:
    datatype = "BYTES" if isinstance(data[0], str) else "INT32"
    return RequestInput(
        name=name,
        datatype=datatype,
        shape=[len(data)],
        data=TensorData(data),
        parameters=Parameters(content_type=content_type) if content_type else None,
    )


def load(models: Path, name: str, task: str, **extra: Any) -> HuggingFaceRuntime:
    parameters = {"extra": {"task": task, "pretrained_model": str(models / name), **extra}}
    settings = ModelSettings(implementation="x", name=name, max_batch_size=4, parameters=parameters)
    runtime = HuggingFaceRuntime(settings)
    assert asyncio.run(runtime.load())
    return runtime


def ask(runtime: HuggingFaceRuntime, *inputs: RequestInput) -> list[Any]:
    response = asyncio.run(runtime.predict(InferenceRequest(inputs=list(inputs))))
    return [json.loads(each) for each in response.outputs[0].data]


def near(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return bool(abs(found - wanted) < 1e-5)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(near, found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(near(found[k], wanted[k]) for k in wanted)
    return bool(found == wanted)


@pytest.mark.parametrize(
    ("name", "task", "inputs", "kind"),
    [
        ("tokens", "token-classification", [tensor("args", [TEXT])], "entity"),
        ("gaps", "fill-mask", [tensor("args", ["the [MASK] was good"])], "token_str"),
        (
            "classes",
            "zero-shot-classification",
            [tensor("sequences", [TEXT]), tensor("candidate_labels", ["good", "bad"])],
            "labels",
        ),
    ],
)
def test_answers_are_those_of_the_pipeline(
    models: Path, name: str, task: str, inputs: list[RequestInput], kind: str
) -> None:
    import transformers

    make: Any = transformers.pipeline
    own = make(task, model=str(models / name), device="cpu")
    texts = inputs[0].data.root
    named = {each.name: each.data.root for each in inputs[1:]}
    wanted = own(texts[0] if inputs[0].name == "args" else texts, **named)
    found = ask(load(models, name, task), *inputs)

    assert near(found, json.loads(json.dumps(wanted, default=float)))
    assert kind in found[0]


def test_embeddings_are_json(models: Path) -> None:
    [vectors] = ask(load(models, "gaps", "feature-extraction"), tensor("args", [TEXT]))

    assert len(vectors) == len(TEXT.split()) + 2
    assert len(vectors[0]) == 32


class TestQuestions:
    def test_are_answered_by_pieces_of_their_contexts(self, models: Path) -> None:
        runtime = load(models, "answers", "question-answering")
        questions = tensor("question", ["what was good ?", "where ?"])
        found = ask(runtime, questions, tensor("context", [TEXT, OTHER]))

        for answer, context in zip(found, (TEXT, OTHER), strict=True):
            assert answer["answer"] == context[answer["start"] : answer["end"]] != ""
            assert 0 < answer["score"] <= 1
        [alone] = ask(runtime, tensor("question", ["where ?"]), tensor("context", [OTHER]))
        assert near(alone, found[1])

    def test_long_contexts_are_read_in_parts(self, models: Path) -> None:
        runtime = load(models, "answers", "question-answering")
        context = f"{TEXT} {OTHER} " * 20
        asked = [tensor("question", ["where ?"]), tensor("context", [context])]
        parts = [tensor("max_seq_len", [32], "raw"), tensor("doc_stride", [8], "raw")]
        three = ask(runtime, *asked, *parts, tensor("top_k", [3], "raw"))

        assert len(three) == 3
        assert [each["score"] for each in three] == sorted(
            (each["score"] for each in three), reverse=True
        )
        assert all(each["answer"] == context[each["start"] : each["end"]] for each in three)

    def test_need_a_context(self, models: Path) -> None:
        runtime = load(models, "answers", "question-answering")

        with pytest.raises(RequestError, match="'context' is missing or empty"):
            ask(runtime, tensor("question", ["where ?"]))
        with pytest.raises(RequestError, match="2 questions but 1 contexts"):
            ask(runtime, tensor("question", ["a", "b"]), tensor("context", [TEXT]))


@pytest.mark.parametrize(
    ("task", "suffix", "name"),
    [
        ("summarization", "", "summary_text"),
        ("translation", "_en_to_de", "translation_text"),
        ("text2text-generation", "", "generated_text"),
    ],
)
def test_texts_are_written(models: Path, task: str, suffix: str, name: str) -> None:
    runtime = load(models, "words", task, **({"task_suffix": suffix} if suffix else {}))
    length = tensor("max_new_tokens", [4], "raw")
    one = ask(runtime, tensor("args", [TEXT]), length)
    two = ask(runtime, tensor("array_inputs", [TEXT, OTHER]), length)

    assert list(one[0]) == list(two[1]) == [name]
    assert one[0] == two[0]


def test_calls_made_together_have_the_answers_they_have_alone(models: Path) -> None:
    runtime = load(models, "gaps", "fill-mask")
    requests = [
        InferenceRequest(inputs=[tensor("args", ["the [MASK] was good"])]),
        InferenceRequest(inputs=[tensor("array_inputs", ["a [MASK]", "[MASK] film"])]),
        InferenceRequest(inputs=[tensor("args", ["no gap"])]),
        InferenceRequest(inputs=[tensor("inputs", ["the [MASK]"])]),
    ]
    together = asyncio.run(runtime.predict_together(requests))

    assert isinstance(together[2], RequestError)
    assert "No mask_token" in str(together[2])
    for at in (0, 1, 3):
        found = [json.loads(each) for each in together[at].outputs[0].data]
        assert near(found, ask(runtime, *requests[at].inputs))


def test_onnx_runtime_answers_the_same_and_is_made_once(
    models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = tensor("array_inputs", [TEXT, OTHER])
    graph = load(models, "classes", "text-classification", optimum_model=True)
    [made] = (tmp_path / "marserve" / "onnx").glob("*/model.onnx")
    written_at = made.stat().st_mtime_ns
    again = load(models, "classes", "zero-shot-classification", optimum_model=True)

    assert near(ask(graph, asked), ask(load(models, "classes", "text-classification"), asked))
    assert ask(again, asked, tensor("candidate_labels", ["good", "bad"]))
    assert made.stat().st_mtime_ns == written_at


def test_models_are_found_by_path_uri_and_package_and_never_fetched(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from marserve.handlers.mlserver.huggingface.building import find_model

    (tmp_path / "packaged_weights" / "model").mkdir(parents=True)
    (tmp_path / "packaged_weights" / "__init__.py").touch()
    (tmp_path / "packaged_weights" / "model" / "config.json").write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)

    assert find_model("./gaps", None, models, "k") == (models / "gaps").resolve()
    assert find_model(None, "gaps", models, "k") == (models / "gaps").resolve()
    assert find_model("packaged-weights", None, models, "k").name == "model"
    with pytest.raises(HandlerLoadError, match=r"extra\.pretrained_model: 'bert-base'"):
        find_model("bert-base", None, models, "pretrained_model")


@pytest.mark.parametrize("value", ["http://localhost/a.png", "/etc/hostname", "../a.png"])
def test_a_request_never_chooses_what_is_read(value: str) -> None:
    with pytest.raises(RequestError, match="neither addresses nor paths are read"):
        picture(value)
