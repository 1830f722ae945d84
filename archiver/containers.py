"""The two containers, zip and gzipped tar, read as one: a run of admitted members with content."""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from marserve.archiver.errors import ArchiveError
from marserve.archiver.members import Guarded, Limits, Member, Roster

Content = IO[bytes]

_ZIP_DIRECTORY_BYTES = 16 << 20
_TAR_HEADER_BYTES = 4 << 20
_PAX_GLOBAL_CHARS = 1 << 20
_ENCRYPTED = 0x1 | 0x40
_GZIP_MAGIC = b"\x1f\x8b"
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    RuntimeError,
    ValueError,
)


@contextlib.contextmanager
def read_members(path: Path, limits: Limits) -> Iterator[Iterator[tuple[Member, Content]]]:
    """Opens an archive; use the members in order, each before the next.

    All members of a zip are checked before the first is handed out. A tar has no table of contents:
    its members are checked one by one, each before it is handed out.

    Args:
        path: ``.mar`` or ``.war`` for a zip; any other file is taken for a gzipped tar, whose first
            path component is dropped.
        limits: What the archive may cost.

    Raises:
        ArchiveError: On entering, while iterating or reading, if the archive is broken or hostile.
    """
    try:
        with path.open("rb") as file:
            packed_bytes = os.fstat(file.fileno()).st_size
            zipped = path.name.lower().endswith((".mar", ".war"))
            read = _zip_members if zipped else _tar_members
            yield read(file, packed_bytes, limits)
    except ArchiveError as error:
        raise ArchiveError(f"{path.name}: {error}") from None
    except _BROKEN as error:
        reason = str(error) or type(error).__name__
        raise ArchiveError(f"{path.name}: is broken or incomplete: {reason}") from error
    except OSError as error:
        raise ArchiveError(f"{path.name}: {error.strerror or error}") from error


def _zip_members(
    file: BinaryIO, packed_bytes: int, limits: Limits
) -> Iterator[tuple[Member, Content]]:
    guarded = Guarded(file, _ZIP_DIRECTORY_BYTES)
    with zipfile.ZipFile(cast(IO[bytes], guarded)) as archive:
        roster = Roster(limits, packed_bytes)
        admitted = [(info, _admit(info, roster, limits)) for info in archive.infolist()]
        for info, member in admitted:
            if member:
                with archive.open(info) as content:
                    yield member, content


def _admit(info: zipfile.ZipInfo, roster: Roster, limits: Limits) -> Member | None:
    """Returns what is to be extracted, None for a directory."""
    name = info.orig_filename  # zipfile itself cuts ``filename`` at a NUL
    kind = stat.S_IFMT(info.external_attr >> 16)
    directory = name.endswith("/")
    if kind not in (0, stat.S_IFDIR if directory else stat.S_IFREG):
        raise ArchiveError(f"{name!r}: is a link, a device or the like; only files are allowed")
    if info.flag_bits & _ENCRYPTED:
        raise ArchiveError(f"{name!r}: is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveError(f"{name!r}: has compression method {info.compress_type}, want 0 or 8")
    if directory and info.file_size:
        raise ArchiveError(f"{name!r}: is a directory with content")
    limits.check_size(repr(name), info.file_size, info.compress_size)
    name = roster.admit(name, info.file_size, directory=directory)
    return None if directory else Member(name, info.file_size, info.compress_size)


def _tar_members(
    file: BinaryIO, packed_bytes: int, limits: Limits
) -> Iterator[tuple[Member, Content]]:
    if file.read(2) != _GZIP_MAGIC:
        raise ArchiveError("is neither a .mar nor a gzipped tar")
    file.seek(0)
    roster = Roster(limits, packed_bytes)
    with gzip.GzipFile(fileobj=file) as plain:
        guarded = Guarded(cast(BinaryIO, plain), _TAR_HEADER_BYTES, limits, packed_bytes)
        with tarfile.open(fileobj=cast(IO[bytes], guarded), mode="r:") as archive:
            while info := archive.next():
                archive.members = []  # type: ignore[attr-defined]  # else it keeps all headers
                if sum(map(len, archive.pax_headers.values())) > _PAX_GLOBAL_CHARS:
                    raise ArchiveError("has global headers beyond all measure")
                if (member := _admit_tar(info, roster)) and (content := archive.extractfile(info)):
                    yield member, content


def _admit_tar(info: tarfile.TarInfo, roster: Roster) -> Member | None:
    """Returns what is to be extracted, None for a directory."""
    if not (info.isdir() or info.type in (tarfile.REGTYPE, tarfile.AREGTYPE)) or info.issparse():
        raise ArchiveError(
            f"{info.name!r}: is a link, a device or the like; only files are allowed"
        )
    if info.name.startswith("/"):
        raise ArchiveError(f"{info.name!r}: the name is absolute")
    first, slash, rest = info.name.partition("/")
    if first == "..":
        raise ArchiveError(f"{info.name!r}: the name leads out of the archive")
    if info.isdir() and not (slash and rest):
        return None
    name = roster.admit(rest if slash else first, info.size, directory=info.isdir())
    return None if info.isdir() else Member(name, info.size)
