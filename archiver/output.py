"""Files and directories that appear whole or not at all, and the one time that archives tell."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from marserve.archiver.errors import ArchiveError
from marserve.archiver.manifest import MANIFEST_PATH

_EPOCH_S = 315_532_800  # 1980-01-01, the first day that a zip can name


def created_on() -> str:
    """Returns ``dd/mm/YYYY HH:MM:SS``, UTC: ``SOURCE_DATE_EPOCH``, else the zip format's first day.

    Raises:
        ArchiveError: If the variable is no number of seconds.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", str(_EPOCH_S))
    try:
        moment = datetime.datetime.fromtimestamp(int(text), datetime.UTC)
    except (ValueError, OverflowError, OSError):
        message = f"SOURCE_DATE_EPOCH: expected seconds since 1970, got {text!r}"
        raise ArchiveError(message) from None
    return moment.strftime("%d/%m/%Y %H:%M:%S")


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Opens a file that takes the target's place when all is well, and vanishes otherwise."""
    unfinished = _beside(target)
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
        _sync_directory(target.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Like ``new_file``; an existing directory gets the files one by one, and keeps its others."""
    unfinished = _beside(target)
    try:
        unfinished.mkdir()
        yield unfinished
        if target.exists():
            _merge(unfinished, target)
        else:
            unfinished.rename(target)
        _sync_directory(target.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _merge(source: Path, target: Path) -> None:
    # The manifest goes last: until then its digests show that the directory is unfinished.
    files = [path for path in source.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: (path.name == Path(MANIFEST_PATH).name, path)):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)


def _beside(target: Path) -> Path:
    """Returns an unused name in the target's directory: only there is renaming atomic."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
