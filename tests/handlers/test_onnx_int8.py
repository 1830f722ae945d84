from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from marserve.handlers.export import onnx_int8
from marserve.handlers.runners.base import Inputs

WIDTH = 32
LOUD = 5  # a channel far larger than the others, as transformers have some


def graph(is_transposed: bool = False, is_shared: bool = False) -> Any:
    """Four products in a row, each with a ReLU before it; LOUD enters the first."""
    generator = numpy.random.default_rng(0)
    nodes: list[Any] = []
    weights: list[Any] = []
    name = "states"
    for at in range(4):
        weight = f"weight{0 if is_shared else at}"
        kind = "Gemm" if is_transposed else "MatMul"
        options: dict[str, Any] = {"transB": 1} if is_transposed else {}
        nodes.append(helper.make_node("Relu", [name], [f"relu{at}"], name=f"node_relu{at}"))
        product = f"product{at}"
        nodes.append(
            helper.make_node(kind, [f"relu{at}", weight], [product], name=f"node{at}", **options)
        )
        if weight not in [value.name for value in weights]:
            values = generator.normal(size=(WIDTH, WIDTH)).astype(numpy.float32) / WIDTH**0.5
            weights.append(numpy_helper.from_array(values, weight))
        name = product
    shape: list[Any] = ["rows", WIDTH]
    ends = [
        helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each in ("states", name)
    ]
    body = helper.make_graph(nodes, "tiny", ends[:1], ends[1:], weights)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def batches(count: int, seed: int = 1) -> list[Inputs]:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        states = torch.randn((16, WIDTH), generator=generator)
        states[:, LOUD] = states[:, LOUD].abs() * 200
        found.append({"states": states})
    return found


def run(model: Any, inputs: Inputs) -> Any:
    content = model.read_bytes() if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {name: value.numpy() for name, value in inputs.items()})[0]


def error(path: Path, model: Any) -> float:
    """The relative one, over inputs that nothing was measured on."""
    (inputs,) = batches(1, seed=2)
    expected = run(model, inputs)
    return float(numpy.linalg.norm(run(path, inputs) - expected) / numpy.linalg.norm(expected))


def kinds(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_loud_channel_takes_no_precision_from_the_others(
    tmp_path: Path, is_transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_int8, "KEPT", 0)
    (inputs,) = batches(1)
    inputs["states"][:, LOUD] *= 5
    model = graph(is_transposed)
    weight = model.graph.initializer[0]
    quiet = numpy_helper.to_array(weight).copy()
    quiet[(slice(None), LOUD) if is_transposed else LOUD] *= 0.001
    weight.CopyFrom(numpy_helper.from_array(quiet, weight.name))
    plain, even = tmp_path / "plain.onnx", tmp_path / "even.onnx"
    right = onnx.ModelProto.FromString(model.SerializeToString())

    assert [] == onnx_int8.quantize(graph_copy(right), plain, [])
    assert [] == onnx_int8.quantize(graph_copy(right), even, [inputs])

    assert error(even, right) < error(plain, right) / 3
    assert ["even.onnx", "plain.onnx"] == sorted(path.name for path in tmp_path.iterdir())


def graph_copy(model: Any) -> Any:
    return onnx.ModelProto.FromString(model.SerializeToString())


def test_evening_out_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_int8, "KEPT", 1)  # so nothing is rounded

    kept = onnx_int8.quantize(graph(), tmp_path / "m.onnx", batches(2))

    assert sorted(kept) == ["node0", "node1", "node2", "node3"]
    assert error(tmp_path / "m.onnx", graph()) < 1e-5


def test_the_most_inexact_products_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_int8, "KEPT", 0.5)
    spared, path = tmp_path / "spared.onnx", tmp_path / "m.onnx"

    kept = onnx_int8.quantize(graph(), spared, batches(2))
    monkeypatch.setattr(onnx_int8, "KEPT", 0)
    onnx_int8.quantize(graph(), path, batches(2))

    assert len(kept) == 2
    assert kinds(spared).count("MatMulInteger") == 2
    assert kinds(path).count("MatMulInteger") == 4
    assert error(spared, graph()) < error(path, graph())


def test_shared_weights_stay_shared(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"

    onnx_int8.quantize(graph(is_shared=True), path, batches(2))

    assert not [name for name in onnx.load(path).graph.initializer if "even" in name.name]
    assert error(path, graph(is_shared=True)) < 0.2


def test_rounding_error_sees_the_range_of_what_enters() -> None:
    generator = numpy.random.default_rng(0)
    states, weight = generator.normal(size=(20, WIDTH)), generator.normal(size=(WIDTH, WIDTH))
    loud = states.copy()
    loud[0, 0] = 1000

    assert 0 < onnx_int8.rounding_error(states, weight) < 1e-3
    assert onnx_int8.rounding_error(loud[1:], weight) < 1e-3
    zeros = numpy.zeros((2, WIDTH))
    assert onnx_int8.rounding_error(zeros, weight) == 0
