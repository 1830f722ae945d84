"""The command ``archive-workflow``: packs a workflow, with torch-workflow-archiver's flags.

Exit status: 0 for success, 1 for an error in the input (told on stderr), 2 for wrong usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from marserve.archiver.cli import told_errors
from marserve.archiver.options import CompatCommand
from marserve.archiver.workflow_archive import WorkflowPackage, pack_workflow

_PATH = click.Path(path_type=Path)


@click.command("archive-workflow", cls=CompatCommand)
@click.option("--workflow-name", metavar="NAME", required=True, help="Name, also of the archive.")
@click.option("--spec-file", type=_PATH, required=True, help="The specification, YAML.")
@click.option("--handler", type=_PATH, help="Python file with the functions.")
@click.option("--extra-files", default="", help="Further files, separated by commas.")
@click.option(
    "--export-path", type=_PATH, default=Path(), help="Where to put the archive.  [default: here]"
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing archive.")
def pack(
    workflow_name: str,
    spec_file: Path,
    handler: Path | None,
    extra_files: str,
    export_path: Path,
    *,
    force: bool,
) -> None:
    """Packs a workflow into an archive that the server can register."""
    extra = tuple(Path(piece.strip()) for piece in extra_files.split(",") if piece.strip())
    pack_workflow(
        WorkflowPackage(
            workflow_name=workflow_name,
            spec_file=spec_file,
            handler=handler,
            extra_files=extra,
            export_path=export_path,
            force=force,
        )
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits.

    Args:
        arguments: Without the program's name; those of the process by default.
    """
    with told_errors():
        pack.main(arguments, prog_name="archive-workflow")
