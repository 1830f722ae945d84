"""TorchServe's command names as scripts in a folder of the user's choice: ``serve install-names``.

They are not installed with the package: an environment that has TorchServe has commands of these
names already, and the last package to be installed would silently win.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import click

from marserve.archiver.errors import ConfigError

NAMES = {
    "torchserve": "marserve.frontend.cli",
    "torch-model-archiver": "marserve.archiver.cli",
    "torch-workflow-archiver": "marserve.archiver.workflow_cli",
}
_MARK = "# Written by marserve: serve install-names"


def install_names(directory: Path) -> list[Path]:
    """Writes the three commands; each runs what this Python has of ours.

    Args:
        directory: Made if missing; should be on ``PATH``.

    Raises:
        ConfigError: If there is a command of another origin, or the folder cannot be written; then
            nothing is changed.
    """
    paths = [directory / name for name in NAMES]
    for path in paths:
        if os.path.lexists(path) and not _is_ours(path):
            reason = f"there is a {path.name} already that is not ours, such as TorchServe's"
            raise ConfigError(str(path), reason, "name a folder that comes before it on PATH")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, module in zip(paths, NAMES.values(), strict=True):
            _write(path, module)
    except OSError as error:
        raise ConfigError(str(directory), f"cannot be written: {error.strerror}") from None
    return paths


@click.command("install-names", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def command(directory: Path) -> None:
    """Writes the commands torchserve, torch-model-archiver and torch-workflow-archiver.

    They go into DIRECTORY and run marserve's commands; what another program has put there stays.
    """
    try:
        for path in install_names(directory):
            click.echo(f"wrote {path}")
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def _is_ours(path: Path) -> bool:
    try:
        return _MARK in path.read_text(errors="replace")
    except OSError:
        return False


def _write(path: Path, module: str) -> None:
    # A shell finds the interpreter: "#!" has no room for a long path, nor for one with blanks.
    quoted = "'" + sys.executable.replace("'", "'\\''") + "'"
    code = f"import sys; sys.argv[0] = '{path.name}'; from {module} import main; main()"
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(f'#!/bin/sh\n{_MARK}\nexec {quoted} -P -c "{code}" "$@"\n')
    mode = temporary.stat().st_mode
    temporary.chmod(mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    temporary.replace(path)
