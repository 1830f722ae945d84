"""Archives written as models of an MLServer repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marserve.archiver.errors import ArchiveError
from marserve.archiver.mlserver_export import export_mlserver
from marserve.archiver.unpack import open_directory

CONFIG = """
batchSize: 4
maxBatchDelay: 50
handler: {mode: sequence_classification}
"""


def archive(folder: Path, handler: str, config: str = "") -> Path:
    (folder / "MAR-INF").mkdir(parents=True)
    model: dict[str, Any] = {"modelName": "m", "modelVersion": "2.1", "handler": handler}
    if config:
        (folder / "model-config.yaml").write_text(config)
        model["configFile"] = "model-config.yaml"
        model["serializedFile"] = "weights.safetensors"
        (folder / "weights.safetensors").write_bytes(b"weights")
        (folder / "config.json").write_text("{}")
    manifest = {"runtime": "python", "model": model}
    (folder / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
    (folder / "echo.py").write_text("def handle(data, context):\n    return data\n")
    return folder


def written(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "model-settings.json").read_text())
    return found


def test_the_handler_is_hosted(tmp_path: Path) -> None:
    folder = export_mlserver(archive(tmp_path / "a", "echo.py"), tmp_path / "repository")

    assert folder == tmp_path / "repository" / "m"
    assert written(folder)["implementation"] == "hosted.Hosted"
    assert (folder / "archive" / "echo.py").is_file()
    again = open_directory(folder)
    assert (again.manifest.model.model_name, again.manifest.model.model_version) == ("m", "2.1")
    assert not again.config.warnings


def test_a_transformer_archive_is_a_pipeline_if_wanted(tmp_path: Path) -> None:
    source = archive(tmp_path / "a", "transformer_handler", CONFIG)
    folder = export_mlserver(source, tmp_path / "repository", pipeline=True)
    settings = written(folder)

    assert settings["implementation"] == "mlserver_huggingface.HuggingFaceRuntime"
    assert settings["parameters"]["extra"]["task"] == "text-classification"
    assert (settings["max_batch_size"], settings["max_batch_time"]) == (4, 0.05)
    assert (folder / "model" / "model.safetensors").read_bytes() == b"weights"
    assert not (folder / "model" / "MAR-INF").exists()
    assert not open_directory(folder).config.warnings


@pytest.mark.parametrize(
    ("handler", "config", "pipeline", "named"),
    [
        ("echo.py", "", True, "only archives of transformer_handler are pipelines"),
        (
            "transformer_handler",
            "handler: {mode: sentence_similarity}",
            True,
            "no pipeline does what handler.mode sentence_similarity does",
        ),
        (
            "transformer_handler",
            "handler: {mode: fill_mask, save_mode: onnx}",
            True,
            "runs from onnx; a pipeline needs the weights",
        ),
        ("", "", False, "names no handler"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, handler: str, config: str, pipeline: bool, named: str
) -> None:
    source = archive(tmp_path / "a", handler, config)

    with pytest.raises(ArchiveError, match=named):
        export_mlserver(source, tmp_path / "repository", pipeline=pipeline)
    assert not (tmp_path / "repository" / "m").exists()


def test_what_is_there_stays(tmp_path: Path) -> None:
    source = archive(tmp_path / "a", "echo.py")
    export_mlserver(source, tmp_path / "repository")

    with pytest.raises(ArchiveError, match="is there already"):
        export_mlserver(source, tmp_path / "repository")
