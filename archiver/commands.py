"""Further commands of ``archive-model``: those that need PyTorch, found when they are named.

They are entry points of the group ``marserve.archive_commands``, so that packing imports nothing of
them; another package may add its own.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import click

from marserve.archiver.errors import ArchiveError
from marserve.archiver.spec import PackageSpec

GROUP = "marserve.archive_commands"
"""Entry points by the command's name; each is a ``click.Command``."""


def find_command(name: str) -> click.Command | None:
    """Returns the command of that name, None if there is none.

    Raises:
        ArchiveError: If there is one, and a package that it needs is missing.
    """
    for entry in metadata.entry_points(group=GROUP, name=name):
        try:
            found: click.Command = entry.load()
        except ImportError as error:
            raise ArchiveError(
                f"archive-model {name} cannot be loaded from {entry.value}: {error}; install what"
                " it needs, or the package anew"
            ) from error
        return found
    return None


def command_names() -> list[str]:
    """Returns the names of all further commands, without loading any."""
    return sorted({entry.name for entry in metadata.entry_points(group=GROUP)})


def pack_exported(
    spec: PackageSpec,
    save_mode: str,
    quantization: str | None,
    package: Callable[[PackageSpec], Path],
) -> None:
    """Packs weights, then has the command ``export`` make the wanted archive of that one.

    Args:
        spec: What to pack, and where to.
        save_mode: What the model is to be run from.
        quantization: As in ``handler.quantization``, or None.
        package: Packs the weights.

    Raises:
        ArchiveError: If the command is not installed.
    """
    export = find_command("export")
    if export is None:
        raise ArchiveError(f"--save-mode {save_mode} needs the entry point 'export' of {GROUP}")
    flags = ["--save-mode", save_mode, "--archive-format", spec.archive_format]
    flags += ["--output", str(spec.target)]
    flags += ["--quantization", quantization] if quantization else []
    flags += ["--force"] if spec.force else []
    with tempfile.TemporaryDirectory(prefix="marserve-") as scratch:
        plain = dataclasses.replace(spec, export_path=Path(scratch), archive_format="no-archive")
        weights = package(plain)
        export.main([str(weights), *flags], prog_name=export.name, standalone_mode=False)
