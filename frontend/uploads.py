"""Models whose files come with the call that loads them: Triton's folders, written and read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marserve.archiver.manifest import check_model_name
from marserve.archiver.triton_config import FILE_NAME, render
from marserve.archiver.triton_folder import members, open_folder
from marserve.archiver.unpack import Archive


def write_model(
    free: Callable[[], Path], name: str, config: Mapping[str, Any], files: Mapping[str, bytes]
) -> list[Archive]:
    """Writes the files of a model and reads the versions that it serves.

    Args:
        free: Returns a path where a directory can be made, another one each time.
        name: Of the model.
        config: Its configuration, as JSON has it.
        files: Their contents by their paths, relative and without ``..``.

    Returns:
        The versions, the one that answers by default first; the parent of its directory belongs to
        each alone, so that it can go without the others.

    Raises:
        ArchiveError: If files are missing.
        ConfigError: If the configuration is wrong.
        OSError: If the paths are no paths of files, or nothing can be written.
    """
    check_model_name(name, "name of the model")
    root = free()
    try:
        return _versions(free, _write(root / name, {**config, "name": name}, files))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _write(whole: Path, config: dict[str, Any], files: Mapping[str, bytes]) -> Path:
    whole.mkdir(parents=True)
    for path, content in files.items():
        (whole / path).parent.mkdir(parents=True, exist_ok=True)
        (whole / path).write_bytes(content)
    (whole / FILE_NAME).write_text("\n".join(render(config)))
    return whole


def _versions(free: Callable[[], Path], whole: Path) -> list[Archive]:
    made: list[Path] = []
    try:
        archives = []
        for version in filter(None, members(whole)):
            made.append(free())
            archives.append(open_folder(_alone(whole, version, made[-1] / whole.name)))
        return archives or [open_folder(whole)]  # which says what is wrong with it
    except BaseException:
        for each in made:
            shutil.rmtree(each, ignore_errors=True)
        raise


def _alone(whole: Path, version: str, own: Path) -> Path:
    """Moves a version into a folder of its own, with what it shares with the others."""
    own.mkdir(parents=True)
    for entry in whole.iterdir():
        if entry.is_file():
            shutil.copyfile(entry, own / entry.name)
    return (whole / version).rename(own / version)
