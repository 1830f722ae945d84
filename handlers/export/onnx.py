"""ONNX files written, with weights of 32 bits or of 8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.export.subject import Subject, export_graph, quiet
from marserve.handlers.runners.onnx import QUANTIZATION_KEY

FILE_NAME = "model.onnx"


def write(subject: Subject, directory: Path) -> list[Path]:
    """Writes the model; returns its path.

    Raises:
        HandlerLoadError: If a package for it is missing.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401  # the file is tried before it is packed
        import onnxscript  # noqa: F401  # which torch uses
    except ImportError as error:
        raise HandlerLoadError(
            f"save_mode: onnx needs {error.name}, which is not installed: pip install"
            " marserve[onnx]"
        ) from error
    path = directory / FILE_NAME
    with quiet(), torch.no_grad():
        program: Any = torch.onnx.export(
            export_graph(subject),
            output_names=list(subject.output_names),
            dynamo=True,
            verbose=False,
        )
    program.save(path)
    if subject.quantization is not None:
        _quantize(path, subject.quantization)
    return sorted(directory.glob(f"{FILE_NAME}*"))


def _quantize(path: Path, quantization: str) -> None:
    """Weights become int8 when the file is written, activations when it is run."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path)
    del model.graph.value_info[:]  # the exporter's notes of shapes are older than its optimizations
    onnx.save(model, path)
    with quiet():
        quantize_dynamic(path, path, per_channel=True, weight_type=QuantType.QInt8)
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {QUANTIZATION_KEY: quantization})
    onnx.save(model, path)
