"""The requests of ``model_warmup``, made and run before a worker says that it can serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.triton.tensors import deserialize_bytes_tensor, triton_string_to_numpy

FOLDER = "warmup"
_SEED = 0


def warm_up(
    config: Mapping[str, Any], folder: Path, run: Callable[[dict[str, Any]], object]
) -> None:
    """Runs what the configuration names, each as often as it says.

    Args:
        config: Of the model.
        folder: Of the model; files of data are in its folder ``warmup``.
        run: Runs one request: arrays by name.

    Raises:
        HandlerLoadError: If a request cannot be made.
        Exception: Whatever the model raises.
    """
    for sample in config.get("model_warmup", []):
        rows = sample.get("batch_size", 0)
        lead = [max(1, rows)] if config.get("max_batch_size") else []
        row = {
            name: _array(f"model_warmup {sample.get('name')!r}: {name}", each, lead, folder)
            for name, each in sample.get("inputs", {}).items()
        }
        for _ in range(sample.get("count", 0) or 1):
            run(row)


def _array(what: str, given: Mapping[str, Any], lead: list[int], folder: Path) -> Any:
    dims = list(given.get("dims", []))
    if any(size < 1 for size in dims):
        raise HandlerLoadError(f"{what}: expected dimensions above 0, got {dims}")
    dtype, shape = triton_string_to_numpy(given["data_type"]), [*lead, *dims]
    if name := given.get("input_data_file"):
        return _read(what, folder, name, dtype, dims, lead)
    texts = dtype is np.object_
    if given.get("random_data"):
        random = np.random.default_rng(_SEED)
        if texts:
            return _objects([random.bytes(8) for _ in range(prod(shape))], shape)
        if np.dtype(dtype).kind == "f":
            return random.random(shape).astype(dtype)
        return random.integers(0, 2 if dtype is np.bool_ else 100, shape).astype(dtype)
    return _objects([b""] * prod(shape), shape) if texts else np.zeros(shape, dtype)


def _read(what: str, folder: Path, name: str, dtype: Any, dims: list[int], lead: list[int]) -> Any:
    path = folder / FOLDER / name
    if Path(name).name != name or not path.is_file():
        raise HandlerLoadError(f"{what}: there is no file {FOLDER}/{name}")
    data = path.read_bytes()
    try:
        if dtype is np.object_:
            one = deserialize_bytes_tensor(data).reshape(dims)
        else:
            one = np.frombuffer(data, dtype).reshape(dims)
    except ValueError as error:
        raise HandlerLoadError(f"{what}: {FOLDER}/{name}: {error}") from None
    return np.broadcast_to(one, [*lead, *dims]).copy()


def _objects(values: list[bytes], shape: list[int]) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)
