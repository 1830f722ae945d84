"""What an archive may contain: names and sizes are checked here, before a byte is written.

An archive is hostile until each of its members was admitted by a ``Roster``: no way out of the
target directory, no two members for one file, no more bytes than the limits allow.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import BinaryIO

from marserve.archiver.errors import ArchiveError
from marserve.archiver.manifest import MANIFEST_PATH

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE = re.compile(r"[A-Za-z]:")
_NAME_BYTES = 255
_PATH_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may cost; what exceeds it is refused.

    Args:
        total_bytes: Size of all members, unpacked.
        members: Number of files and directories.
        ratio: Unpacked size over packed size, looked at from ``ratio_floor_bytes`` on.
        ratio_floor_bytes: Unpacked size below which any ratio is harmless.
    """

    total_bytes: int = 1 << 40
    members: int = 100_000
    ratio: float = 200.0
    ratio_floor_bytes: int = 64 << 20

    def check_size(self, what: str, size_bytes: int, packed_bytes: int) -> None:
        """Refuses a size that is too large, in itself or for what it was packed into.

        Raises:
            ArchiveError: If a limit is exceeded.
        """
        if size_bytes > self.total_bytes:
            raise ArchiveError(f"{what}: unpacks to more than the {self.total_bytes} bytes allowed")
        if size_bytes > max(self.ratio_floor_bytes, self.ratio * packed_bytes):
            raise ArchiveError(
                f"{what}: {packed_bytes} bytes unpack to {size_bytes} or more, "
                f"beyond the ratio of {self.ratio:g} allowed"
            )


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Member:
    """One admitted file.

    Args:
        name: Relative path with ``/``, safe to join to a directory.
        size_bytes: Unpacked.
        packed_bytes: As it stands in the archive; None where that is not known for one file.
    """

    name: str
    size_bytes: int
    packed_bytes: int | None = None


class Roster:
    """Admits the members of one archive, one by one.

    Args:
        limits: What the archive may cost.
        packed_bytes: Size of the archive.
    """

    def __init__(self, limits: Limits, packed_bytes: int) -> None:
        self._limits = limits
        self._packed_bytes = packed_bytes
        self._count = 0
        self.total_bytes = 0
        # Folded name -> (name as first written, whether a directory). Systems that ignore case or
        # the form of accents would otherwise write two members into one file.
        self._taken: dict[str, tuple[str, bool]] = {}
        self._take(MANIFEST_PATH.split("/")[0], directory=True)

    @classmethod
    def unlimited(cls) -> Roster:
        """Returns a roster that looks at names alone."""
        return cls(Limits(total_bytes=1 << 62, members=1 << 62), 0)

    def admit(self, name: str, size_bytes: int, *, directory: bool = False) -> str:
        """Takes note of a member.

        Returns:
            The name, without the slash at a directory's end.

        Raises:
            ArchiveError: If the member must not be unpacked.
        """
        self._count += 1
        if self._count > self._limits.members:
            raise ArchiveError(f"has more than the {self._limits.members} members allowed")
        name = name.rstrip("/") if directory else name
        check_name(name)
        if _folded(name) == _folded(MANIFEST_PATH) and name != MANIFEST_PATH:
            raise ArchiveError(f"{name!r}: differs from {MANIFEST_PATH} by case alone")
        self._take_with_parents(name, directory=directory)
        self.total_bytes += size_bytes
        self._limits.check_size("archive", self.total_bytes, self._packed_bytes)
        return name

    def _take_with_parents(self, name: str, *, directory: bool) -> None:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            self._take("/".join(parts[:depth]), directory=True)
        self._take(name, directory=directory)

    def _take(self, name: str, *, directory: bool) -> None:
        taken = self._taken.get(_folded(name))
        if taken is None:
            self._taken[_folded(name)] = (name, directory)
            return
        first, was_directory = taken
        if first != name:
            raise ArchiveError(f"{name!r}: differs from {first!r} by case alone")
        if not (directory and was_directory):
            raise ArchiveError(f"{name!r}: is in the archive twice")


class Guarded:
    """A file that refuses to be read in huge pieces or further than the limits allow.

    The readers of the standard library read headers whole, at whatever size the archive claims.

    Args:
        file: Unpacked bytes, or the archive itself.
        read_bytes: Most that one read may ask for.
        limits: Applied to the position in ``file`` if given.
        packed_bytes: Size of the archive.
    """

    def __init__(
        self, file: BinaryIO, read_bytes: int, limits: Limits | None = None, packed_bytes: int = 0
    ) -> None:
        self._file = file
        self._read_bytes = read_bytes
        self._limits = limits
        self._packed_bytes = packed_bytes

    def read(self, size: int = -1) -> bytes:
        """Reads as a file does.

        Raises:
            ArchiveError: If a limit is exceeded.
        """
        if size > self._read_bytes:
            raise ArchiveError(f"a header of {size} bytes exceeds the {self._read_bytes} allowed")
        data = self._file.read(self._read_bytes + 1 if size < 0 else size)
        if len(data) > self._read_bytes:
            raise ArchiveError(f"a header exceeds the {self._read_bytes} bytes allowed")
        self._check(self._file.tell())
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Seeks as a file does.

        Raises:
            ArchiveError: If a limit is exceeded.
        """
        if whence == 0:
            self._check(offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Returns the position."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Returns true."""
        return True

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _check(self, position: int) -> None:
        if self._limits:
            self._limits.check_size("archive", position, self._packed_bytes)


def check_name(name: str) -> None:
    """Refuses a name that is not a plain relative path.

    Raises:
        ArchiveError: With the reason.
    """
    shown = ascii(name[:200])
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise ArchiveError(f"{shown}: the name is not UTF-8") from None
    parts = name.split("/")
    if _CONTROL.search(name) or "\\" in name:
        raise ArchiveError(f"{shown}: the name has a control character or a backslash")
    if name.startswith("/") or _DRIVE.match(name):
        raise ArchiveError(f"{shown}: the name is absolute")
    if ".." in parts:
        raise ArchiveError(f"{shown}: the name leads out of the archive")
    if {"", "."} & set(parts):
        raise ArchiveError(f"{shown}: the name is no plain path")
    if len(encoded) > _PATH_BYTES or any(len(part.encode()) > _NAME_BYTES for part in parts):
        raise ArchiveError(f"{shown}: the name is too long")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
