"""Guards against numbers that are none: removed where there can be none, and kept where not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.handlers.exporting import Exported, exported

from marserve.handlers.export.onnx_simplify import drop_nan_guards

__all__ = ["exported"]

SMALLEST = float(numpy.finfo(numpy.float32).min)


def attention(masked: float, output: str = "out") -> Any:
    """Softmax of masked scores, its guard, and something behind it."""
    nodes = [
        helper.make_node("Where", ["mask", "zero", "masked"], ["added"]),
        helper.make_node("Add", ["scores", "added"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["shares"], axis=-1),
        helper.make_node("IsNaN", ["shares"], ["wrong"]),
        helper.make_node("Where", ["wrong", "zero", "shares"], ["guarded"]),
        helper.make_node("Neg", ["guarded"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes if output == "out" else nodes[:-1],
        "attention",
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("mask", TensorProto.BOOL, [2, 3]),
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [2, 3])],
        [
            numpy_helper.from_array(numpy.array(value, numpy.float32), name)
            for name, value in (("zero", 0), ("masked", masked))
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    scores = numpy.array([[1, 2, -3], [0.5, -9e30, 4]], numpy.float32)
    mask = numpy.array([[True, False, True], [False, False, False]])
    return session.run(None, {"scores": scores, "mask": mask})[0]


def test_a_guard_goes_and_no_number_changes() -> None:
    model = attention(SMALLEST)
    expected = run(model)

    assert drop_nan_guards(model) == 1
    assert [node.op_type for node in model.graph.node] == ["Where", "Add", "Softmax", "Neg"]
    onnx.checker.check_model(model)
    assert numpy.array_equal(expected, run(model))
    assert not numpy.isnan(expected).any()


@pytest.mark.parametrize("model", [attention(-numpy.inf), attention(SMALLEST, "guarded")])
def test_a_guard_stays_where_it_is_needed(model: Any) -> None:
    expected = run(model)

    assert drop_nan_guards(model) == 0
    assert numpy.array_equal(expected, run(model))


@pytest.mark.parametrize(("kind", "task"), [("bert", "sequence_classification")])
def test_exported_models_have_none(exported: Exported, kind: str, task: str) -> None:
    file: Path = exported(kind, task, "onnx") / "model.onnx"
    kinds = {node.op_type for node in onnx.load(file).graph.node}

    assert "Softmax" in kinds
    assert "IsNaN" not in kinds
