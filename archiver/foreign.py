"""Model folders of other servers: recognized by their files, read as archives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from marserve.archiver.unpack import Archive


class Format(NamedTuple):
    """A kind of folder.

    Args:
        name: For messages.
        recognizes: Whether a folder is of this kind; looks at names of files only.
        open: Reads it in place; raises ``ArchiveError`` or ``ConfigError``.
    """

    name: str
    recognizes: Callable[[Path], bool]
    open: Callable[[Path], Archive]


FORMATS: tuple[Format, ...] = ()


def format_of(folder: Path) -> Format | None:
    """Returns the kind of a folder; None for one of ours."""
    return next((each for each in FORMATS if each.recognizes(folder)), None)
