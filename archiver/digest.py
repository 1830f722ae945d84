"""Bytes copied and hashed in one pass, in constant memory."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

CHUNK_BYTES = 1 << 20


class Readable(Protocol):
    """What can be read in pieces."""

    def read(self, size: int, /) -> bytes:
        """Returns at most ``size`` bytes, none at the end."""
        ...


class HashedReader:
    """Hashes and counts what is read through it.

    Args:
        source: Where the bytes come from.
        advance: Told of the length of each piece.
    """

    def __init__(self, source: Readable, advance: Callable[[int], object] | None = None) -> None:
        self._source = source
        self._advance = advance
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def read(self, size: int, /) -> bytes:
        """Returns at most ``size`` bytes, none at the end."""
        data = self._source.read(size)
        self._digest.update(data)
        self.size_bytes += len(data)
        if self._advance:
            self._advance(len(data))
        return data

    def copy(self, write: Callable[[bytes], object], at_most: int = sys.maxsize) -> HashedReader:
        """Passes everything up to the end to ``write``, piece by piece; returns itself.

        Args:
            write: Takes a piece.
            at_most: Reading stops soon after this many bytes: a file may grow without end.
        """
        while self.size_bytes <= at_most and (chunk := self.read(CHUNK_BYTES)):
            write(chunk)
        return self

    def hexdigest(self) -> str:
        """Returns the sha256 of what was read, lower-case hex."""
        return self._digest.hexdigest()


def hash_file(path: Path) -> str:
    """Returns the sha256 of a file, lower-case hex."""
    with path.open("rb") as file:
        return HashedReader(file).copy(len).hexdigest()


def hash_lines(lines: Iterable[str]) -> str:
    """Returns the sha256 of the sorted lines: one digest for a set of files."""
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()
