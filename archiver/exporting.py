"""What all exports into another server's repository begin and end with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marserve.archiver.errors import ArchiveError
from marserve.archiver.output import new_directory
from marserve.archiver.unpack import Archive, open_directory, unpack


@contextmanager
def opened_for_export(path: Path) -> Iterator[tuple[Archive, str]]:
    """Opens an archive whose handler another server is to host.

    Args:
        path: An archive or its directory.

    Yields:
        The archive, whose files are there until the end, and the name that its model is to have.

    Raises:
        ArchiveError: If the archive cannot be read, or names no handler.
    """
    with tempfile.TemporaryDirectory(prefix="marserve-") as scratch:
        unpacked = Path(scratch, "archive")
        archive = open_directory(path) if path.is_dir() else unpack(path, unpacked)
        model = archive.manifest.model
        if not model.handler:
            raise ArchiveError(f"{path.name}: names no handler, so there is nothing to host")
        yield archive, model.model_name or path.name.partition(".")[0]


@contextmanager
def new_model_folder(repository: Path, name: str) -> Iterator[Path]:
    """Makes a model's folder in a repository; after an error there is none.

    Yields:
        Where its files are to be written.

    Raises:
        ArchiveError: If the repository has such a folder already.
    """
    folder = repository / name
    if folder.exists():
        raise ArchiveError(f"{folder}: is there already")
    repository.mkdir(parents=True, exist_ok=True)
    with new_directory(folder) as made:
        yield made
