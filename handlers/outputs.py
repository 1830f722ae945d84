"""From a model's output to one plain result a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def to_plain(value: Any) -> Any:
    """Returns tensors and arrays, wherever they are nested, as lists and numbers.

    Args:
        value: Anything; what JSON has a form for is kept.
    """
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if type(value).__module__ == "numpy":
        return value.tolist()
    return value


def to_rows(output: Any) -> list[Any]:
    """Returns one result a row of a model's output.

    Args:
        output: A tensor or array whose first dimension is the row; a mapping of such by name, which
            gives one object a row; or a list with an item a row.

    Raises:
        TypeError: If it is none of these.
    """
    if isinstance(output, Mapping):
        plain = {key: to_plain(item) for key, item in output.items()}
        columns = [column for column in plain.values() if isinstance(column, list)]
        if len(columns) == len(plain) and len({len(column) for column in columns}) == 1:
            return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
        raise TypeError("the model's output is a mapping of values that have no row in common")
    if isinstance(output, list):
        return [to_plain(item) for item in output]
    plain = to_plain(output)
    if isinstance(plain, list):
        return plain
    raise TypeError(f"the model's output has no rows: {type(output).__name__}")
