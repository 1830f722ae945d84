"""ONNX products of eight bits: ranges evened out and the most inexact products left as they are.

The engine has one scale for all that enters a product, so a few large channels take the precision
of all others. Those are divided, and their weights multiplied, by the same factors (Xiao et al.
2022, "SmoothQuant", arXiv:2211.10438). What is still far off is kept in float32, up to a share of
the weights. Both are measured on sample inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from marserve.handlers.program_files import open_onnx
from marserve.handlers.runners.base import Inputs

Array = NDArray[Any]

BATCHES = 8
"""How many of the sample batches are measured."""
KEPT = 1 / 3
"""Largest share of the weights that stays in float32; each tenth costs long texts some speed."""
_EVENNESS = 0.8  # 0 evens out the weights, 1 what enters; more than half: weights have more scales
_FLOOR = 0.5
_TINY = 1e-5


@dataclass(slots=True)
class _Product:
    """A node that multiplies by constant weights.

    Args:
        node: ``MatMul`` or ``Gemm``.
        weight: ``[in, out]``.
        is_shared: Whether other nodes have the same weights.
    """

    node: Any
    weight: Array
    is_shared: bool

    @property
    def states(self) -> str:
        """What enters, ``[..., in]``."""
        return str(self.node.input[0])


def quantize(model: Any, path: Path, batches: Sequence[Inputs]) -> list[str]:
    """Writes a model whose products are of eight bits.

    Args:
        model: An ONNX model of float32; it is changed.
        path: Where to.
        batches: Sample inputs; without any, all products are quantised as they are.

    Returns:
        The names of the nodes that were left in float32.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    products, chosen = _products(model), batches[:BATCHES]
    kept: list[str] = []
    if products and chosen:
        _even_out(model, products, _largest(model, products, chosen, path))
        kept = most_inexact(products, _errors(model, products, chosen, path))
    quantize_dynamic(
        model, path, per_channel=True, weight_type=QuantType.QInt8, nodes_to_exclude=kept
    )
    return kept


def most_inexact(products: Sequence[_Product], errors: dict[str, float]) -> list[str]:
    """Returns the names of those with the largest errors that together have ``KEPT`` of weights."""
    left = KEPT * sum(product.weight.size for product in products)
    kept = []
    for product in sorted(products, key=lambda product: -errors[product.node.name]):
        left -= product.weight.size
        if left < 0:
            break
        kept.append(str(product.node.name))
    return kept


def rounding_error(states: Array, weight: Array) -> float:
    """Returns by how much a product changes in eight bits: norms' ratio, squared.

    Args:
        states: What enters, ``[..., in]``; it gets one scale.
        weight: ``[in, out]``; each column gets one.
    """
    scales = numpy.maximum(numpy.abs(weight).max(0), _TINY) / 127
    low, high = min(float(states.min()), 0.0), max(float(states.max()), 0.0)
    step = max(high - low, _TINY) / 255
    exact = states @ weight
    found = (numpy.round(states / step) * step) @ (numpy.round(weight / scales) * scales)
    return float(((found - exact) ** 2).sum() / max(float((exact**2).sum()), _TINY))


def _products(model: Any) -> list[_Product]:
    from onnx import numpy_helper

    weights = {value.name: value for value in model.graph.initializer if len(value.dims) == 2}
    users: dict[str, int] = defaultdict(int)
    for node in model.graph.node:
        for name in node.input:
            users[name] += 1
    found = []
    for node in model.graph.node:
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights:
            weight = numpy_helper.to_array(weights[node.input[1]])
            weight = weight.T if _is_transposed(node) else weight
            found.append(_Product(node, weight, users[node.input[1]] > 1))
    return found


def _is_transposed(node: Any) -> bool:
    return any(option.name == "transB" and option.i for option in node.attribute)


def _largest(
    model: Any, products: list[_Product], batches: Sequence[Inputs], path: Path
) -> dict[str, Array]:
    """For everything that enters a product: the largest value of each channel."""
    found: dict[str, Array] = {}
    for values in _entering(model, products, batches, path):
        for name, states in values.items():
            largest: Array = numpy.abs(states.reshape(-1, states.shape[-1])).max(0)
            found[name] = numpy.maximum(found[name], largest) if name in found else largest
    return found


def _errors(
    model: Any, products: list[_Product], batches: Sequence[Inputs], path: Path
) -> dict[str, float]:
    """For every product: the mean of its errors."""
    found: dict[str, float] = defaultdict(float)
    for values in _entering(model, products, batches, path):
        for product in products:
            found[product.node.name] += rounding_error(values[product.states], product.weight)
    return found


def _entering(
    model: Any, products: list[_Product], batches: Sequence[Inputs], path: Path
) -> Iterator[dict[str, Array]]:
    """Runs the model on each batch, and yields what enters its products."""
    import onnx

    names = sorted({product.states for product in products})
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    known = {value.name for value in watched.graph.output}
    watched.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in known
    )
    file = path.with_name("watched.onnx")
    onnx.save(watched, file)
    try:
        session = open_onnx(file, torch.device("cpu"), torch.get_num_threads())
        taken = [value.name for value in session.get_inputs()]
        for inputs in batches:
            feed = {name: inputs[name].cpu().numpy() for name in taken}
            yield dict(zip(names, session.run(names, feed), strict=True))
    finally:
        file.unlink()


def _even_out(model: Any, products: list[_Product], largest: dict[str, Array]) -> None:
    """Divides what enters by factors that go into the weights: the products stay the same."""
    groups: dict[str, list[_Product]] = defaultdict(list)
    for product in products:
        groups[product.states].append(product)
    for name, group in groups.items():
        if not any(product.is_shared for product in group):  # each user would need its own copy
            _even_out_group(model, name, group, _factors(largest[name], group))


def _factors(largest: Array, group: list[_Product]) -> Array:
    weights = numpy.max([numpy.abs(product.weight).max(1) for product in group], 0)
    floor = max(float(numpy.quantile(largest, _FLOOR)), _TINY)  # small in a few texts, not in all
    entering = numpy.maximum(largest, floor) ** _EVENNESS
    factors = entering / numpy.maximum(weights, _TINY) ** (1 - _EVENNESS)
    factors /= numpy.exp(numpy.log(factors).mean())
    clipped: Array = numpy.clip(factors, 1e-3, 1e3).astype(numpy.float32)
    return clipped


def _even_out_group(model: Any, name: str, group: list[_Product], factors: Array) -> None:
    from onnx import helper, numpy_helper

    graph, even = model.graph, f"{name}_even"
    nodes = [product.node for product in group]
    first = next(at for at, node in enumerate(graph.node) if node in nodes)
    by_name = {value.name: value for value in graph.initializer}
    for product in group:
        product.weight = product.weight * factors[:, None]
        stored = product.weight.T if _is_transposed(product.node) else product.weight
        weight = by_name[product.node.input[1]]
        weight.CopyFrom(numpy_helper.from_array(numpy.ascontiguousarray(stored), weight.name))
        product.node.input[0] = even
    graph.initializer.append(numpy_helper.from_array(1 / factors, f"{even}_factors"))
    divide = helper.make_node("Mul", [name, f"{even}_factors"], [even], name=f"{even}_divide")
    graph.node.insert(first, divide)
