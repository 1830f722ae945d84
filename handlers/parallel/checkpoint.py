"""Weights on disk, of which a rank reads its part alone.

What is cut is copied out of the file, so that a rank holds no more of it than its part. What is not
cut stays mapped from the file, and all ranks of a machine share it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError

_WHOLE = ("model.safetensors", "pytorch_model.bin")
Cut = tuple[int, list[tuple[int, int]]]
"""Dimension, and the ranges of it that are taken, end to end."""


class _File(Protocol):
    def names(self) -> Iterator[str]: ...
    def whole(self, name: str) -> Tensor: ...
    def cut(self, name: str, cut: Cut) -> Tensor: ...


class _SafeFile:
    def __init__(self, path: Path) -> None:
        from safetensors import safe_open

        self._open: Callable[[], Any] = lambda: safe_open(path, "pt")
        self._mapped: Any = self._open()
        # Apart, so that what was only copied from does not stay mapped.
        self._read: Any = self._open()

    def names(self) -> Iterator[str]:
        yield from self._mapped.keys()

    def whole(self, name: str) -> Tensor:
        tensor: Tensor = self._mapped.get_tensor(name)
        return tensor

    def cut(self, name: str, cut: Cut) -> Tensor:
        dim, ranges = cut
        piece, before = self._read.get_slice(name), (slice(None),) * dim
        return torch.cat([piece[(*before, slice(*r))] for r in ranges], dim)


class _PickledFile:
    def __init__(self, path: Path) -> None:
        self._tensors: dict[str, Tensor] = torch.load(
            path, map_location="cpu", mmap=True, weights_only=True
        )

    def names(self) -> Iterator[str]:
        yield from self._tensors

    def whole(self, name: str) -> Tensor:
        return self._tensors[name]

    def cut(self, name: str, cut: Cut) -> Tensor:
        dim, ranges = cut
        tensor = self._tensors[name]
        return torch.cat([tensor.narrow(dim, a, b - a) for a, b in ranges], dim)


class Checkpoint:
    """The weights of an archive.

    Args:
        directory: The unpacked archive.
        own_name: Of its serialized file, or None.

    Raises:
        HandlerLoadError: If there are none, or they cannot be read.
    """

    def __init__(self, directory: Path, own_name: str | None) -> None:
        self._files: dict[str, _File] = {}
        for path in _find_files(directory, own_name):
            try:
                file = _SafeFile(path) if path.suffix == ".safetensors" else _PickledFile(path)
            except Exception as error:  # each format has errors of its own
                raise HandlerLoadError(f"{path.name}: cannot be read: {error}") from error
            self._files |= dict.fromkeys(file.names(), file)

    def find(self, name: str, prefix: str) -> str | None:
        """Returns under which name a weight was saved, None if it was not.

        Args:
            name: In the model.
            prefix: Of the names of its base model, which may have been saved without or alone.
        """
        bare = name.removeprefix(f"{prefix}.")
        for known in (name, bare, f"{prefix}.{name}"):
            stem, _, last = known.rpartition(".")
            old = {"weight": "gamma", "bias": "beta"}.get(last, last)
            for candidate in (known, f"{stem}.{old}"):
                if candidate in self._files:
                    return candidate
        return None

    def read(self, name: str, cut: Cut | None = None) -> Tensor:
        """Returns a weight, or a part of it; ``name`` as ``find`` returned it."""
        file = self._files[name]
        return file.whole(name) if cut is None else file.cut(name, cut)

    def floating_dtype(self) -> torch.dtype:
        """Returns the type of the first weight that is no whole number."""
        dtypes = (file.whole(name).dtype for name, file in self._files.items())
        return next((dtype for dtype in dtypes if dtype.is_floating_point), torch.float32)


def _find_files(directory: Path, own_name: str | None) -> list[Path]:
    for name in _WHOLE:
        if (directory / name).is_file():
            return [directory / name]
        index = directory / f"{name}.index.json"
        if index.is_file():
            names = set(json.loads(index.read_text())["weight_map"].values())
            return [directory / each for each in sorted(names)]
    if own_name is not None and (directory / own_name).is_file():
        return [directory / own_name]
    raise HandlerLoadError(
        f"the archive has no weights: expected {_WHOLE[0]} (or {_WHOLE[1]});"
        " pack them with --serialized-file or --extra-files"
    )
