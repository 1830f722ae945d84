"""Models of MLServer repositories written from archives: the handler hosted, or a pipeline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from marserve.archiver.errors import ArchiveError
from marserve.archiver.exporting import new_model_folder, opened_for_export
from marserve.archiver.manifest import TRANSFORMER_HANDLER
from marserve.archiver.mlserver_huggingface import HUGGING_FACE
from marserve.archiver.mlserver_settings import MODEL_FILE
from marserve.archiver.pretrained import saved_task
from marserve.archiver.unpack import Archive

INPUT, OUTPUT = "data", "output"
"""Names of the tensors of a hosted handler: what a client would post, and what it would get."""

TASKS = {
    "sequence_classification": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
    "text_generation": "text-generation",
    "fill_mask": "fill-mask",
    "zero_shot_classification": "zero-shot-classification",
    "image_classification": "image-classification",
    "automatic_speech_recognition": "automatic-speech-recognition",
    "summarization": "summarization",
    "translation": "translation",
    "feature_extraction": "feature-extraction",
}
"""Modes of the transformer handler, and the tasks of transformers that do the same."""

_RUNTIME = "hosted.Hosted"
_HOST = '''"""Hosts the archive beside this file; marserve must be importable there."""

import os

from marserve.worker.hosting import HostedArchive
from mlserver import MLModel
from mlserver.errors import MLServerError
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, ResponseOutput


class Hosted(MLModel):
    async def load(self) -> bool:
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "archive")
        self._archive = HostedArchive(folder)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Each element of the one input is what a client would post to the archive."""
        [given] = payload.inputs
        bodies = [row if isinstance(row, bytes) else str(row).encode() for row in given.data]
        answers = self._archive.answer(bodies)
        for answer in answers:
            if answer.error:
                raise MLServerError(answer.error, answer.status)
        output = ResponseOutput(
            name="output",
            datatype="BYTES",
            shape=[len(answers), 1],
            parameters=Parameters(content_type="str"),
            data=[bytes(answer.body) for answer in answers],
        )
        return InferenceResponse(
            model_name=self.name, model_version=self.version, outputs=[output]
        )
'''


def export_mlserver(path: Path, repository: Path, *, pipeline: bool = False) -> Path:
    """Writes a model of an MLServer repository.

    Args:
        path: An archive or its directory.
        repository: Where the model's folder goes.
        pipeline: Whether MLServer's Hugging Face runtime serves the archive's weights, in its own
            form of answers, rather than the archive's handler, which is hosted.

    Returns:
        The model's folder.

    Raises:
        ArchiveError: If the archive cannot be read, or written in this form, or the folder is
            there already.
    """
    with opened_for_export(path) as (archive, name), new_model_folder(repository, name) as made:
        described = _write_pipeline(archive, made) if pipeline else _write_host(archive, made)
        version = archive.manifest.model.model_version
        parameters = {"version": version, **described.pop("parameters", {})}
        settings = {"name": name, **described, "parameters": parameters}
        (made / MODEL_FILE).write_text(json.dumps(settings, indent=2) + "\n")
    return repository / name


def _write_host(archive: Archive, folder: Path) -> dict[str, Any]:
    shutil.copytree(archive.directory, folder / "archive")
    (folder / "hosted.py").write_text(_HOST)
    text = {"datatype": "BYTES", "shape": [-1]}
    return {
        "implementation": _RUNTIME,
        **_batching(archive),
        "inputs": [{"name": INPUT, **text}],
        "outputs": [{"name": OUTPUT, "datatype": "BYTES", "shape": [-1, 1]}],
    }


def _write_pipeline(archive: Archive, folder: Path) -> dict[str, Any]:
    options, model = archive.config.handler, archive.manifest.model
    if model.handler != TRANSFORMER_HANDLER:
        raise ArchiveError(
            f"{model.model_name}: has the handler {model.handler!r}; only archives of"
            f" {TRANSFORMER_HANDLER} are pipelines"
        )
    mode = options.mode or _saved_mode(archive.directory)
    if mode not in TASKS:
        raise ArchiveError(f"{model.model_name}: no pipeline does what handler.mode {mode} does")
    if options.save_mode not in (None, "pretrained"):
        raise ArchiveError(
            f"{model.model_name}: runs from {options.save_mode}; a pipeline needs the weights"
        )
    shutil.copytree(archive.directory, folder / "model")
    shutil.rmtree(folder / "model" / "MAR-INF", ignore_errors=True)
    (folder / "model" / "model-config.yaml").unlink(missing_ok=True)
    _with_usual_name(folder / "model", model.serialized_file)
    extra = {"task": TASKS[mode], "pretrained_model": "./model", "framework": "pt"}
    return {
        "implementation": HUGGING_FACE,
        **_batching(archive),
        "parameters": {"extra": extra},
    }


def _batching(archive: Archive) -> dict[str, Any]:
    rows, delay_ms = archive.config.batch_size or 1, archive.config.max_batch_delay or 0
    if rows < 2:
        return {}
    return {"max_batch_size": rows, "max_batch_time": max(delay_ms, 1) / 1000}


def _saved_mode(directory: Path) -> str:
    try:
        described = json.loads((directory / "config.json").read_bytes())
    except (OSError, ValueError):
        described = {}
    return saved_task(described.get("architectures") or ()) or ""


def _with_usual_name(directory: Path, serialized_file: str | None) -> None:
    """Weights are found by their usual names alone."""
    name = serialized_file or ""
    for ending in (".safetensors", ".bin"):
        usual = "model.safetensors" if ending == ".safetensors" else "pytorch_model.bin"
        if name.endswith(ending) and name != usual and not (directory / usual).exists():
            (directory / name).rename(directory / usual)
