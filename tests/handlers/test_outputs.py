from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from marserve.handlers.outputs import to_plain, to_rows


@pytest.mark.parametrize(
    ("output", "rows"),
    [
        (torch.tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.5, 2.5]), [1.5, 2.5]),
        ([torch.tensor(1), {"a": np.float32(0.5)}], [1, {"a": 0.5}]),
        ((torch.tensor([1]),), [[1]]),
        ({"a": torch.tensor([1, 2]), "b": ["x", "y"]}, [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
        ([], []),
    ],
)
def test_rows(output: Any, rows: list[Any]) -> None:
    assert rows == to_rows(output)


@pytest.mark.parametrize("output", ["text", 3, torch.tensor(1.0), {"a": [1], "b": [1, 2]}])
def test_what_has_no_rows(output: Any) -> None:
    with pytest.raises(TypeError):
        to_rows(output)


def test_plain_values_are_kept() -> None:
    value = {"a": ["b", None, 1.5, True]}

    assert value == to_plain(value)
