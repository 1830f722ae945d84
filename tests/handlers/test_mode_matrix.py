"""Every task in every mode of execution: the same outputs within the mode's tolerance, or refused.

`ok` is compared here; `apart` takes minutes to compile, and is compared for some tasks in
test_export.py and test_compiled.py; `-` is an error when packing. Ranks are in test_parallel.py.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from tests.handlers.exporting import Exported, exported, serve
from tests.handlers.serving import TEXTS, ask
from tests.media_models import image, tone, wav

from marserve.archiver.errors import ConfigError
from marserve.archiver.execution import find_execution
from marserve.archiver.handler_options import Task
from marserve.archiver.model_config import parse_model_config
from marserve.handlers.optimize.candidates import CANDIDATES, Candidate, computes_in_bfloat16
from marserve.handlers.runners.base import Inputs
from marserve.handlers.transformer import TransformerHandler

__all__ = ["exported"]

TABLE = """
                              unpadded compiled torchscript exported onnx openvino aot_inductor
sequence_classification       ok       apart    ok          ok       ok   ok       apart
token_classification          ok       apart    ok          ok       ok   ok       apart
question_answering            ok       apart    ok          ok       ok   ok       apart
text_generation               -        apart    ok          ok       ok   ok       apart
fill_mask                     ok       apart    ok          ok       ok   ok       apart
zero_shot_classification      ok       apart    ok          ok       ok   ok       apart
feature_extraction            ok       apart    ok          ok       ok   ok       apart
sentence_similarity           ok       apart    ok          ok       ok   ok       apart
image_classification          -        apart    ok          ok       ok   ok       apart
automatic_speech_recognition  -        apart    ok          ok       ok   ok       apart
summarization                 -        apart    -           -        -    -        -
translation                   -        apart    -           -        -    -        -

                              eager-bf16 eager-int8 eager-int8-weights onnx-int8 onnx-int8-weights
sequence_classification       ok         ok         ok                 ok        ok
token_classification          ok         ok         ok                 ok        ok
question_answering            ok         ok         ok                 ok        ok
text_generation               ok         ok         ok                 ok        ok
fill_mask                     ok         ok         ok                 ok        ok
zero_shot_classification      ok         ok         ok                 ok        ok
feature_extraction            ok         ok         ok                 ok        ok
sentence_similarity           ok         ok         ok                 ok        ok
image_classification          ok         ok         ok                 ok        ok
automatic_speech_recognition  ok         ok         ok                 ok        ok
summarization                 ok         ok         ok                 -         -
translation                   ok         ok         ok                 -         -

                              openvino-bf16 openvino-int8 eager-fp8
sequence_classification       ok            ok            ok
token_classification          ok            ok            ok
question_answering            ok            ok            ok
text_generation               ok            ok            ok
fill_mask                     ok            ok            ok
zero_shot_classification      ok            ok            ok
feature_extraction            ok            ok            ok
sentence_similarity           ok            ok            ok
image_classification          ok            ok            ok
automatic_speech_recognition  ok            ok            ok
summarization                 -             -             ok
translation                   -             -             ok
"""
TOLERANCES = {"float32": 1e-5, "bfloat16": 0.1, "int8": 0.15}
"""Norm of the differences as a share of the norm of the outputs, by kind of numbers."""
OF_SOUND = {**TOLERANCES, "bfloat16": 0.5}
"""The first layers of an untrained model make much of the last bits of each sample."""

BERT = "a film", "it was bad, and so long that i left the new york"
CHOICES = {"candidate_labels": ["film", "new york"]}
CASES: dict[str, tuple[str, list[Any]]] = {
    "sequence_classification": ("bert", TEXTS["sequence_classification"]),
    "token_classification": ("distilbert", TEXTS["token_classification"]),
    "question_answering": ("roberta", TEXTS["question_answering"]),
    "text_generation": ("gpt2", TEXTS["text_generation"]),
    "fill_mask": ("bert", ["a [MASK] film", "it was [MASK], so [MASK] left the new york"]),
    "zero_shot_classification": ("bert", [{"text": text, **CHOICES} for text in BERT]),
    "feature_extraction": ("bert", [*BERT]),
    "sentence_similarity": ("bert", [{"source_sentence": "a film", "sentences": [*BERT]}]),
    "image_classification": ("vit", [image(), image((9, 9, 200))]),
    "automatic_speech_recognition": ("wav2vec2", [wav(tone(0.5)), wav(tone(0.8, hertz=90))]),
    "summarization": ("t5", ["the film is good", "it was bad in new york ."]),
    "translation": ("t5", ["the film is good", "it was bad in new york ."]),
}


SAME_MODEL = {
    "zero_shot_classification": "sequence_classification",
    "sentence_similarity": "feature_extraction",
    "translation": "summarization",
}
"""Tasks that are served from the archive of another one."""


def cells() -> dict[tuple[str, str], str]:
    """What the table says, by task and mode."""
    found: dict[tuple[str, str], str] = {}
    for block in TABLE.strip("\n").split("\n\n"):
        head, *lines = block.splitlines()
        for task, *marks in map(str.split, lines):
            found |= {(task, mode): mark for mode, mark in zip(head.split(), marks, strict=True)}
    return found


CELLS = cells()
COMPARED = [cell for cell, mark in CELLS.items() if mark == "ok"]
REFUSED = [cell for cell, mark in CELLS.items() if mark == "-"]


def test_the_table_has_every_task_and_every_mode() -> None:
    modes = {mode for _, mode in CELLS}
    kinds = {(c.source, c.quantization, c.compiled, c.numbers) for c in CANDIDATES.values()}
    shown = [CANDIDATES[mode] for mode in modes]

    assert {task for task, _ in CELLS} == set(get_args(Task)) == set(CASES)
    assert len(CELLS) == len(modes) * len(CASES)
    assert {c[0] for c in kinds} == {candidate.source for candidate in shown}
    assert any(candidate.unpadded for candidate in shown)
    assert any(candidate.compiled for candidate in shown)


def settings(mode: Candidate) -> dict[str, Any]:
    """What the mode adds to an archive that has its program."""
    chosen = {} if mode.needs_export else {"quantization": mode.quantization}
    dtype = {"dtype": mode.numbers} if mode.numbers == "bfloat16" else {}
    return {**chosen, **dtype, "BetterTransformer": mode.unpadded}


@pytest.mark.parametrize(("task", "name"), COMPARED)
def test_a_mode_answers_as_eager_does(exported: Exported, task: str, name: str) -> None:
    kind, bodies = CASES[task]
    mode = CANDIDATES[name]
    if name == "openvino-bf16" and not computes_in_bfloat16():
        pytest.skip("this processor does not compute in bfloat16")
    packed_for = SAME_MODEL.get(task, task)
    right = serve(exported(kind, packed_for), mode=task)
    archive = exported(kind, packed_for, mode.source, mode.quantization)
    found = serve(archive, mode=task, **settings(mode))

    tolerances = OF_SOUND if kind == "wav2vec2" else TOLERANCES
    for some in (bodies, bodies[:1]):
        inputs = prepared(right, some)
        expected, actual = run(right, inputs), run(found, inputs)
        for output, values in expected.items():
            difference = (values - actual[output]).norm() / values.norm()
            assert difference <= tolerances[mode.numbers], (output, float(difference))
    if mode.numbers == "float32":
        assert close(ask(right, bodies)) == ask(found, bodies)


@pytest.mark.parametrize(("task", "name"), REFUSED)
def test_what_cannot_run_is_an_error_when_packing(task: str, name: str) -> None:
    mode = CANDIDATES[name]
    suffix = {"onnx": "onnx", "openvino": "xml", "torchscript": "pt"}.get(mode.source, "pt2")
    file = "model.safetensors" if not mode.needs_export else f"model.{suffix}"
    config = mode.config({"handler": {"mode": task}})

    with pytest.raises(ConfigError, match=f"{task}|BetterTransformer"):
        find_execution(parse_model_config(config), file)


def test_one_text_explained_in_three_modes_has_the_same_words_in_the_same_order(
    exported: Exported,
) -> None:
    kind, task = "bert", "sequence_classification"
    text = "a film that was good, and so long that i left new york: the movie is bad"
    explain = {"n_steps": 20, "words": True}
    modes = [
        serve(exported(kind, task), explain=explain),
        serve(exported(kind, task), explain=explain, BetterTransformer=True),
        serve(exported(kind, task), explain=explain, quantization="int8_dynamic"),
        *(serve(exported(kind, task, s), explain=explain) for s in ("torchscript", "onnx")),
    ]

    found = [ask(handler, [text], explain=True)[0] for handler in modes]

    first, *others = [(ranked(each, "words"), ranked(each, "merged_words")) for each in found]
    assert len(set(first[0])) > 10
    assert others == [first] * 4


def ranked(explanation: dict[str, Any], key: str) -> list[str]:
    """The words, the one that counts most first."""
    counts = explanation["importances" if key == "words" else "merged_importances"]
    pairs = zip(counts, explanation[key], strict=True)
    return [word for _, word in sorted(pairs, key=lambda pair: -pair[0])]


def prepared(handler: TransformerHandler, bodies: list[Any]) -> Inputs:
    items = [handler.task.parse(handler.task.read({"body": body})) for body in bodies]
    return dict(handler.task.encode(items).inputs)


def run(handler: TransformerHandler, inputs: Inputs) -> dict[str, torch.Tensor]:
    """What the runner says, without what it says of padding."""
    names = handler.runner.input_names
    if "decoder_input_ids" in names:
        inputs = {**inputs, "decoder_input_ids": torch.zeros((len(inputs["input_ids"]), 1)).long()}
    found = handler.runner({name: inputs[name] for name in names if name in inputs})
    per_token = handler.task.per_token and "decoder_input_ids" not in names
    kept = inputs["attention_mask"].bool() if per_token and "attention_mask" in inputs else ...
    return {name: values[kept].float() for name, values in found.items()}


def close(value: Any) -> Any:
    if isinstance(value, float):
        return pytest.approx(value, abs=1e-4)
    if isinstance(value, dict):
        return {name: close(each) for name, each in value.items()}
    return [close(each) for each in value] if isinstance(value, list) else value
