"""Which file goes into an archive under which name."""

from __future__ import annotations

import filecmp
import glob
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from marserve.archiver.errors import ArchiveError
from marserve.archiver.manifest import MANIFEST_PATH
from marserve.archiver.members import Roster, check_name
from marserve.archiver.spec import Handler, PackageSpec

_log = logging.getLogger(__name__)
_PRUNED = ("__pycache__", "__MACOSX")


def gather(spec: PackageSpec, handler: Handler) -> dict[str, Path]:
    """Returns the file for each name in the archive, sorted by name, the manifest excepted.

    Args:
        spec: What to pack.
        handler: The resolved ``spec.handler``.

    Raises:
        ArchiveError: If a file is missing, has no storable name, or two files want one name.
    """
    files: dict[str, Path] = {}
    for flag, source in (
        ("--handler", handler.source),
        ("--serialized-file", spec.serialized_file),
        ("--model-file", spec.model_file),
        ("--requirements-file", spec.requirements_file),
        ("--config-file", spec.config_file),
    ):
        if source is not None:
            path = Path(source)
            if not path.is_file():
                kind = "not a file" if path.exists() else "file not found"
                raise ArchiveError(f"{flag}: {kind}: {path}")
            _add(files, path.name, path)
    for path in _extra_paths(spec.extra_files):
        for name, file in _expand(path):
            # An archive in a packed directory must not swallow its own former self or manifest.
            if name != MANIFEST_PATH and not _is_same(file, spec.target):
                _add(files, name, file)
    _refuse_near_duplicates(files)
    return dict(sorted(files.items()))


def _extra_paths(extra_files: str | tuple[str | Path, ...]) -> Iterator[Path]:
    pieces = extra_files.split(",") if isinstance(extra_files, str) else map(str, extra_files)
    for piece in filter(None, map(str.strip, pieces)):
        if Path(piece).exists():
            yield Path(piece)
        elif glob.has_magic(piece):
            found = sorted(glob.glob(piece))
            if not found:
                _log.warning("--extra-files: nothing matches %s", piece)
            yield from map(Path, found)
        else:
            raise ArchiveError(f"--extra-files: file not found: {piece}")


def _expand(path: Path) -> Iterator[tuple[str, Path]]:
    """Yields a file under its own name, of a directory what is in it."""
    if path.is_dir():
        yield from _walk(path, "", frozenset())
    else:
        yield path.name, path


def _walk(directory: Path, prefix: str, above: frozenset[str]) -> Iterator[tuple[str, Path]]:
    real = os.path.realpath(directory)
    if real in above:
        raise ArchiveError(f"--extra-files: {directory} is a link to a directory above it")
    for path in sorted(directory.iterdir()):
        if not path.is_dir():
            yield prefix + path.name, path
        elif not path.name.startswith(".") and path.name not in _PRUNED:
            yield from _walk(path, f"{prefix}{path.name}/", above | {real})


def _add(files: dict[str, Path], name: str, path: Path) -> None:
    if not path.is_file():
        raise ArchiveError(f"{path}: is neither a file nor a directory, or a link to nothing")
    check_name(name)
    first = files.setdefault(name, path)
    if first != path and not filecmp.cmp(first, path, shallow=False):
        raise ArchiveError(
            f"{first} and {path} differ, but both would be stored as {name}: rename one"
        )


def _is_same(file: Path, target: Path) -> bool:
    return file.name == target.name and target.exists() and file.exists() and file.samefile(target)


def _refuse_near_duplicates(files: dict[str, Path]) -> None:
    roster = Roster.unlimited()
    for name in (*files, MANIFEST_PATH):
        roster.admit(name, 0)
