"""The shapes that clients see and those that the model sees: config.pbtxt may reshape tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Shapes:
    """Brings tensors from the one to the other.

    Args:
        config: Of the model.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._batched = bool(config.get("max_batch_size"))
        self._inputs = _reshaped(config.get("input", []), inwards=True)
        self._outputs = _reshaped(config.get("output", []), inwards=False)

    def inwards(self, name: str, array: Any) -> Any:
        """Returns an input in the shape that the model takes."""
        return self._brought(array, self._inputs.get(name))

    def outwards(self, name: str, array: Any) -> Any:
        """Returns an output in the shape that clients are told."""
        return self._brought(array, self._outputs.get(name))

    def _brought(self, array: Any, dims: list[int] | None) -> Any:
        if dims is None:
            return array
        rows = [int(array.shape[0])] if self._batched else []
        given = [int(size) for size in array.shape[len(rows) :]]
        # Variable dimensions keep their sizes, in their order.
        kept = iter(_variable(given, dims))
        return array.reshape(rows + [next(kept, -1) if size == -1 else size for size in dims])


def _variable(given: list[int], dims: list[int]) -> list[int]:
    """Sizes for all but one of several variable dimensions; the last one follows by itself."""
    fixed = [size for size in dims if size != -1]
    free = list(given)
    for size in fixed:
        if size in free:
            free.remove(size)
    wanted = dims.count(-1)
    return free if len(free) == wanted else []


def _reshaped(tensors: list[dict[str, Any]], *, inwards: bool) -> dict[str, list[int]]:
    return {
        each["name"]: list(each["reshape"].get("shape", []) if inwards else each["dims"])
        for each in tensors
        if "reshape" in each
    }
