"""The three layouts of an archive, written member by member: zip, gzipped tar, directory."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from marserve.archiver.digest import HashedReader
from marserve.archiver.errors import ArchiveError

Advance = Callable[[int], None]

_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_TAR_TIME_S = 315_532_800
_UNIX = 3
_MODE = 0o644
_LEVEL = 6


class Writer(Protocol):
    """Takes the members of one archive."""

    def add(self, name: str, path: Path, advance: Advance) -> str:
        """Stores a file, telling ``advance`` of the bytes; returns its sha256."""
        ...

    def add_bytes(self, name: str, data: bytes) -> None:
        """Stores a member that is in memory."""


class ZipWriter(contextlib.AbstractContextManager["ZipWriter"]):
    """Writes a zip; members of any size, in constant memory.

    Args:
        file: Seekable.
        stored: Whether members are left uncompressed.
    """

    def __init__(self, file: BinaryIO, *, stored: bool) -> None:
        self._method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
        self._zip = zipfile.ZipFile(file, "w", self._method, compresslevel=_LEVEL)

    def __exit__(self, *exception: object) -> None:
        self._zip.close()

    def add(self, name: str, path: Path, advance: Advance) -> str:
        """Stores a file."""
        with _opened(path, advance) as (content, size_bytes):
            # The size decides on the 64-bit form of the header, which precedes the content.
            with self._zip.open(self._entry(name, size_bytes), "w") as member:
                content.copy(member.write, size_bytes)
            return _unchanged(path, content, size_bytes)

    def add_bytes(self, name: str, data: bytes) -> None:
        """Stores a member that is in memory."""
        with self._zip.open(self._entry(name, len(data)), "w") as member:
            member.write(data)

    def _entry(self, name: str, size_bytes: int) -> zipfile.ZipInfo:
        info = zipfile.ZipInfo(name, _ZIP_TIME)
        info.create_system = _UNIX
        info.external_attr = (0o100000 | _MODE) << 16
        info.compress_type = self._method
        info.file_size = size_bytes
        return info


class TarWriter(contextlib.AbstractContextManager["TarWriter"]):
    """Writes a gzipped tar, all members below one directory.

    Args:
        file: Where to write.
        prefix: Name of the directory.
    """

    def __init__(self, file: BinaryIO, prefix: str) -> None:
        self._prefix = prefix
        self._gzip = gzip.GzipFile("", "wb", _LEVEL, file, mtime=0)
        self._tar = tarfile.open(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def __exit__(self, *exception: object) -> None:
        self._tar.close()
        self._gzip.close()

    def add(self, name: str, path: Path, advance: Advance) -> str:
        """Stores a file."""
        with _opened(path, advance) as (content, size_bytes):
            self._tar.addfile(self._entry(name, size_bytes), cast(BinaryIO, content))
            content.read(1)  # shows whether the file has grown
            return _unchanged(path, content, size_bytes)

    def add_bytes(self, name: str, data: bytes) -> None:
        """Stores a member that is in memory."""
        self._tar.addfile(self._entry(name, len(data)), io.BytesIO(data))

    def _entry(self, name: str, size_bytes: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(f"{self._prefix}/{name}")
        info.size = size_bytes
        info.mtime = _TAR_TIME_S
        info.mode = _MODE
        return info


class DirectoryWriter:
    """Writes plain files.

    Args:
        directory: An empty one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, name: str, path: Path, advance: Advance) -> str:
        """Stores a file."""
        with _opened(path, advance) as (content, size_bytes), self._create(name) as file:
            content.copy(file.write, size_bytes)
            return _unchanged(path, content, size_bytes)

    def add_bytes(self, name: str, data: bytes) -> None:
        """Stores a member that is in memory."""
        with self._create(name) as file:
            file.write(data)

    @contextlib.contextmanager
    def _create(self, name: str) -> Iterator[BinaryIO]:
        place = self._directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def _opened(path: Path, advance: Advance) -> Iterator[tuple[HashedReader, int]]:
    with path.open("rb") as file:
        yield HashedReader(file, advance), os.fstat(file.fileno()).st_size


def _unchanged(path: Path, content: HashedReader, size_bytes: int) -> str:
    if content.size_bytes != size_bytes:
        raise ArchiveError(f"{path}: changed while it was packed; pack again")
    return content.hexdigest()
