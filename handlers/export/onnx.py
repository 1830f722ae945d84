"""ONNX files written, with weights of 32 bits or of 8."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.output import new_directory
from marserve.handlers.export import onnx_int8
from marserve.handlers.export.onnx_simplify import drop_nan_guards
from marserve.handlers.export.subject import Subject, export_graph, quiet
from marserve.handlers.runners.onnx import QUANTIZATION_KEY

FILE_NAME = "model.onnx"
_BLOCK = 32
_INT8_PRODUCTS = 4  # the engine's number for: activations become int8 too, block by block


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
    draft = None if subject.drafts is None else subject.drafts / "onnx"
    if draft is not None and draft.is_dir():
        shutil.copytree(draft, directory, dirs_exist_ok=True)
    else:
        _write_whole(subject, path)
        if draft is not None:
            draft.parent.mkdir(parents=True, exist_ok=True)
            with new_directory(draft) as made:  # whole or not at all, whoever else makes it now
                shutil.copytree(directory, made, dirs_exist_ok=True)
    if subject.quantization is not None:
        _quantize(path, subject)
    return sorted(directory.glob(f"{FILE_NAME}*"))


def _write_whole(subject: Subject, path: Path) -> None:
    with quiet(), torch.no_grad():
        program: Any = torch.onnx.export(
            export_graph(subject),
            output_names=list(subject.output_names),
            dynamo=True,
            verbose=False,
        )
    program.save(path)
    _simplify(path)


def _simplify(path: Path) -> None:
    import onnx

    model = onnx.load(path, load_external_data=False)
    if drop_nan_guards(model):
        onnx.save(model, path)


def _quantize(path: Path, subject: Subject) -> None:
    """Brings weights to int8 when the file is written; activations become so when it is run."""
    import onnx

    model = onnx.load(path)
    del model.graph.value_info[:]  # the exporter's notes of shapes are older than its optimizations
    with quiet():
        if subject.quantization == "int8_dynamic":
            onnx_int8.quantize(model, path, subject.samples)
        else:
            _in_blocks(model, path)
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {QUANTIZATION_KEY: str(subject.quantization)})
    onnx.save(model, path)


def _in_blocks(model: Any, path: Path) -> None:
    """One scale for each block of weights: nearer than one for each output, and a little slower."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer: Any = MatMulNBitsQuantizer(
        model, bits=8, block_size=_BLOCK, is_symmetric=True, accuracy_level=_INT8_PRODUCTS
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))
