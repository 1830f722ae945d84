"""Model folders of other servers: recognized by their files, read as archives."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from marserve.archiver.manifest import MANIFEST_PATH

if TYPE_CHECKING:
    from marserve.archiver.unpack import Archive

_DEEPEST = 4


def _itself(folder: Path) -> list[str]:
    """A folder that is one model."""
    return [""]


class Format(NamedTuple):
    """A kind of folder.

    Args:
        name: For messages.
        recognizes: Whether a folder is of this kind; looks at names of files only.
        open: Reads it in place; raises ``ArchiveError`` or ``ConfigError``.
        members: What is served of a folder, as paths below it that can be opened, too; "" for the
            folder itself. The first one answers where no version is named.
    """

    name: str
    recognizes: Callable[[Path], bool]
    open: Callable[[Path], Archive]
    members: Callable[[Path], list[str]] = _itself


# By name: most servers see no such folder and need not import what reads it.
_MODULES = (
    "marserve.archiver.mlserver_folder",
    "marserve.archiver.triton_folder",
    "marserve.archiver.pretrained_folder",
)


def formats() -> tuple[Format, ...]:
    """Returns all kinds."""
    return tuple(cast("Format", import_module(module).FORMAT) for module in _MODULES)


def format_of(folder: Path) -> Format | None:
    """Returns the kind of a folder; None for one of ours."""
    if (folder / MANIFEST_PATH).is_file():
        return None
    return next((each for each in formats() if each.recognizes(folder)), None)


def served_below(folder: Path, depth: int = 0) -> list[list[str]]:
    """Returns what a folder of the model store has to serve.

    Args:
        folder: A model, one of another server, or a repository that holds such models.
        depth: How far below the folder that was asked for.

    Returns:
        One list a model: its versions, as paths below ``folder``, the default one first. A folder
        that is nothing known is a model itself.
    """
    kind = format_of(folder)
    if kind is not None:
        return [kind.members(folder)]
    found: list[list[str]] = []
    if depth < _DEEPEST and not (folder / MANIFEST_PATH).is_file():
        children = sorted(each for each in folder.iterdir() if each.is_dir())
        for child in children:
            if not child.name.startswith(".") and not child.is_symlink():
                groups = served_below(child, depth + 1)
                found += [[_joined(child.name, path) for path in group] for group in groups]
    return found or ([[""]] if not depth else [])


def _joined(name: str, path: str) -> str:
    return f"{name}/{path}" if path else name
