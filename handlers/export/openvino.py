"""OpenVINO models written, with weights of 32 bits or of 8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import torch

from marserve.handlers.export.subject import Subject, quiet
from marserve.handlers.runners.openvino import QUANTIZATION_KEY, import_openvino

FILE_NAME = "model.xml"
_WORTH_BYTES = 1 << 10  # smaller weights are not worth an operation of their own


def write(subject: Subject, directory: Path) -> list[Path]:
    """Writes the model; returns the paths of graph and weights.

    Raises:
        HandlerLoadError: If OpenVINO is not installed.
    """
    openvino = import_openvino()
    path = directory / FILE_NAME
    with quiet(), torch.no_grad():
        model = openvino.convert_model(subject.forward(), example_input=subject.example())
    _name_inputs(model, subject.input_names)
    for output, name in zip(model.outputs, subject.output_names, strict=True):
        output.get_tensor().set_names({name})
    if subject.quantization is not None:
        _compress_weights(model)
        model.set_rt_info(subject.quantization, QUANTIZATION_KEY)
    openvino.save_model(model, path, compress_to_fp16=False)
    return [path, path.with_suffix(".bin")]


def _name_inputs(model: Any, names: tuple[str, ...]) -> None:
    """Leaves the inputs their own names alone: the converter adds some, or forgets them."""
    for value, name in zip(model.inputs, names, strict=True):
        value.get_tensor().set_names((value.get_names() & {*names}) or {name})


def _compress_weights(model: Any) -> None:
    """Stores the weights of matrix products as int8, with one scale for each of their outputs."""
    from openvino import opset13

    for node in model.get_ordered_ops():
        if node.get_type_name() != "MatMul":
            continue
        source = node.input_value(1).get_node()
        if source.get_type_name() != "Constant" or source.get_data().nbytes < _WORTH_BYTES:
            continue
        weights = source.get_data()
        outputs_first = node.get_attributes()["transpose_b"]
        scale = numpy.abs(weights).max(axis=-1 if outputs_first else -2, keepdims=True) / 127
        scale = numpy.where(scale == 0, 1, scale).astype(weights.dtype)
        whole = numpy.rint(weights / scale).astype(numpy.int8)
        restored = opset13.multiply(
            opset13.convert(opset13.constant(whole), "f32"), opset13.constant(scale)
        )
        node.input(1).replace_source_output(restored.output(0))
