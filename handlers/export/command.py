"""The command ``archive-model export``: an archive that runs the same model from another source."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from marserve.archiver.handler_options import Quantization, SaveMode
from marserve.archiver.options import CompatCommand
from marserve.archiver.spec import FORMATS

_PATH = click.Path(path_type=Path)
_SOURCES = [mode for mode in get_args(SaveMode) if mode != "pretrained"]


@click.command("archive-model export", cls=CompatCommand)
@click.argument("archive", type=_PATH)
@click.option(
    "--save-mode", "source", type=click.Choice(_SOURCES), required=True, help="What to run it from."
)
@click.option(
    "--quantization",
    type=click.Choice(get_args(Quantization)),
    help="Numbers of fewer bits: int8_dynamic for onnx, int8_weight_only for onnx and openvino.",
)
@click.option(
    "--output",
    "target",
    type=_PATH,
    required=True,
    help="The new archive: .mar, .tar.gz, or without a suffix for a directory.",
)
@click.option(
    "--keep-weights/--drop-weights",
    default=True,
    help="Whether the weights stay in the archive; explanations need them.  [default: keep]",
)
@click.option(
    "--samples",
    type=_PATH,
    help="Inputs to compare on: a text a line, or JSON.  "
    "[default: samples in the archive, or a few sentences]",
)
@click.option(
    "--drafts",
    type=_PATH,
    help="Directory that keeps what all precisions of a program begin with, for the next export of "
    "the same archive.",
)
@click.option(
    "--tolerance", type=float, help="Largest relative difference.  [default: by kind of numbers]"
)
@click.option("--archive-format", type=click.Choice(FORMATS), help="[default: by --output]")
@click.option("--force", "-f", is_flag=True, help="Replace an existing archive.")
def export(**flags: Any) -> None:
    """Writes ARCHIVE's model as a program, compares it with the eager model, and packs it."""
    from marserve.handlers.export.archive import ExportSpec, export_archive

    spec = ExportSpec(**flags)
    parity = export_archive(spec)
    click.echo(f"{spec.source} against eager: {parity}")
    click.echo(f"{spec.target}: written")
