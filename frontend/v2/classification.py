"""Outputs as classes: the largest values with their indices and labels, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from marserve.frontend.errors import BadRequest
from marserve.frontend.v2.tensors import pack_bytes, unpacked

if TYPE_CHECKING:
    from marserve.archiver.signature import Signature
    from marserve.frontend.v2.messages import Infer
    from marserve.frontend.v2.tensors import Tensor


def classified(asked: Infer, outputs: list[Tensor], signature: Signature | None) -> list[Tensor]:
    """Returns outputs, those with the parameter ``classification`` as their largest values.

    Args:
        asked: Says which, and how many values.
        outputs: Those that were asked for.
        signature: Knows labels, and whether the first dimension counts rows.

    Raises:
        BadRequest: If the number is none, or the output holds no numbers; naming the output.
    """
    counts = {
        each.name: each.parameters["classification"]
        for each in asked.outputs
        if "classification" in each.parameters
    }
    if not counts:
        return outputs
    return [
        _classes(each, counts[each.name], signature) if each.name in counts else each
        for each in outputs
    ]


def _classes(tensor: Tensor, count: Any, signature: Signature | None) -> Tensor:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise BadRequest(
            f"output '{tensor.name}': classification: expected a number of classes, 1 or above"
        )
    if not count:
        return tensor
    if tensor.datatype == "BYTES":
        raise BadRequest(f"output '{tensor.name}' holds texts, which have no classification")
    values = unpacked(tensor.datatype, tensor.raw)
    rows = tensor.shape[0] if _has_rows(tensor, signature) else 1
    width = prod(tensor.shape) // max(1, rows)
    labels = _labels(tensor.name, signature)
    most = min(count, width)
    texts: list[bytes] = []
    for row in range(rows):
        texts += _largest(values[row * width : (row + 1) * width], most, labels)
    shape = (rows, most) if _has_rows(tensor, signature) else (most,)
    return replace(tensor, datatype="BYTES", shape=shape, raw=pack_bytes(texts))


def _has_rows(tensor: Tensor, signature: Signature | None) -> bool:
    if signature is not None and signature.strict:
        return signature.rows_max > 0
    return len(tensor.shape) > 1


def _labels(name: str, signature: Signature | None) -> tuple[str, ...]:
    specs = () if signature is None else signature.outputs
    return next((each.labels for each in specs if each.name == name), ())


def _largest(values: Sequence[Any], count: int, labels: Sequence[str]) -> list[bytes]:
    order = sorted(range(len(values)), key=lambda at: values[at], reverse=True)[:count]
    return [_text(values[at], at, labels).encode() for at in order]


def _text(value: Any, at: int, labels: Sequence[str]) -> str:
    shown = f"{value:f}" if isinstance(value, float) else f"{int(value)}"
    label = f":{labels[at]}" if at < len(labels) and labels[at] else ""
    return f"{shown}:{at}{label}"
