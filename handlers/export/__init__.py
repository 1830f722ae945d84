"""Export: a loaded model written as a file of another source, one module a source."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.handler_options import SaveMode
from marserve.handlers.export.subject import Subject

EXPORTERS: dict[SaveMode, str] = {
    "torchscript": "marserve.handlers.export.torchscript",
    "onnx": "marserve.handlers.export.onnx",
    "openvino": "marserve.handlers.export.openvino",
    "aot_inductor": "marserve.handlers.export.aot_inductor",
    "exported": "marserve.handlers.export.exported",
}
FLOAT32_ONLY = ("onnx", "openvino")
"""Sources whose CPU engines compute in float32, whatever the checkpoint has."""


def write_program(source: SaveMode, subject: Subject, directory: Path) -> list[Path]:
    """Writes a model as a file of another source.

    Args:
        source: A key of ``EXPORTERS``.
        subject: The model.
        directory: Where to.

    Returns:
        The serialized file, and the files that must be beside it.

    Raises:
        HandlerLoadError: If a package for it is missing, or the model cannot be expressed so.
    """
    module = import_module(EXPORTERS[source])
    try:
        files: list[Path] = module.write(subject, directory)
    except HandlerLoadError:
        raise
    except Exception as error:  # exporters raise what they like
        raise HandlerLoadError(
            f"save_mode: {source}: the model cannot be exported: {type(error).__name__}:"
            f" {str(error).strip()[:800]}"
        ) from error
    return files
