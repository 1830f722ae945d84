"""What a model takes and gives, as tensors: declared by an archive, or learned from its task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DATATYPES = (
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "BF16",
    "FP32",
    "FP64",
    "BYTES",
)
"""The words of the Open Inference Protocol for the type of a tensor's elements."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output.

    Args:
        name: Unique among the inputs, and among the outputs.
        datatype: One of ``DATATYPES``.
        shape: With the batch dimension, if there is one; -1 where any size will do.
        optional: Whether a request may leave it out; of inputs only.
        parameters: What a format says beyond this, such as ``content_type``; shown in metadata.
        labels: Of classes, by index; of outputs only, and mostly none.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Signature:
    """The tensors of a model.

    Args:
        inputs: All that a request may have.
        outputs: All that an answer may have.
        rows_max: Rows that a request may have along the first dimension; 0 where that dimension is
            no batch dimension or has no bound of its own.
        strict: Whether requests are checked against it; else it is only shown.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    rows_max: int = 0
    strict: bool = True
