"""The tasks beyond the first four from other sources: the same answers as from the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.handlers.conftest import TinyModel
from tests.handlers.exporting import pack, serve
from tests.handlers.serving import ask
from tests.media_models import image, save, tone, wav

from marserve.archiver.errors import MarserveError
from marserve.handlers.export.archive import ExportSpec, export_archive

BODIES: dict[str, list[Any]] = {
    "fill_mask": ["a [MASK] film", "it was [MASK], so [MASK] left the new york"],
    "feature_extraction": ["a film", "it was bad, so i left the new york"],
    "sentence_similarity": [
        {"source_sentence": "a film", "sentences": ["the film", "new york", "it was bad"]}
    ],
    "zero_shot_classification": [
        {"text": "a film", "candidate_labels": ["film", "new york"]},
        {"text": "it was bad", "candidate_labels": ["good", "bad", "new"]},
    ],
    "image_classification": [image(), image((9, 9, 200))],
    "automatic_speech_recognition": [wav(tone(0.5)), wav(tone(0.8, hertz=90))],
}
SAVED = {"fill_mask": "fill_mask"}
MEDIA = {"image_classification": "vit", "automatic_speech_recognition": "wav2vec2"}


@pytest.mark.parametrize(
    ("task", "source"),
    [
        ("fill_mask", "onnx"),
        ("feature_extraction", "onnx"),
        ("sentence_similarity", "torchscript"),
        ("zero_shot_classification", "torchscript"),
        ("image_classification", "onnx"),
        ("image_classification", "torchscript"),
        ("automatic_speech_recognition", "onnx"),
    ],
)
def test_answers_are_those_of_the_weights(
    tiny_model: TinyModel, tmp_path: Path, task: str, source: Any
) -> None:
    if task in MEDIA:
        directory = save(MEDIA[task], tmp_path / "saved")
    else:
        directory = tiny_model("bert", SAVED.get(task, "sequence_classification"))
    weights = pack(directory, task, tmp_path)

    program = tmp_path / "program"
    export_archive(ExportSpec(archive=weights, target=program, source=source))

    expected, answers = ask(serve(weights), BODIES[task]), ask(serve(program), BODIES[task])
    assert _close(expected) == answers


@pytest.mark.parametrize(("kind", "task"), [("t5", "summarization"), ("whisper", None)])
def test_two_programs_in_one_are_refused(tmp_path: Path, kind: str, task: str | None) -> None:
    weights = pack(save(kind, tmp_path / "saved"), task or "automatic_speech_recognition", tmp_path)

    with pytest.raises(MarserveError, match="decoder"):
        export_archive(ExportSpec(archive=weights, target=tmp_path / "program", source="onnx"))


def _close(value: Any) -> Any:
    if isinstance(value, float):
        return pytest.approx(value, abs=1e-4)
    if isinstance(value, dict):
        return {name: _close(each) for name, each in value.items()}
    return [_close(each) for each in value] if isinstance(value, list) else value
