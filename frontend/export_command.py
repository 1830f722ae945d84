"""``serve export``: an archive written as a model of another server's repository."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from marserve.archiver.errors import MarserveError
from marserve.archiver.mlserver_export import export_mlserver
from marserve.archiver.triton_export import export_triton


@click.command("export", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--triton", "kind", flag_value="triton", help="A Triton model repository.")
@click.option("--mlserver", "kind", flag_value="mlserver", help="An MLServer repository.")
@click.option("--onnx", is_flag=True, help="With --triton: the ONNX file alone, for its backend.")
@click.option(
    "--pipeline",
    is_flag=True,
    help="With --mlserver: its Hugging Face runtime with the weights, instead of the handler.",
)
@click.argument("archive", type=click.Path(exists=True, path_type=Path))
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def export(kind: str | None, onnx: bool, pipeline: bool, archive: Path, directory: Path) -> None:
    """Writes ARCHIVE as a model in the repository DIRECTORY of another server.

    ARCHIVE is a .mar file or its directory. The model's folder must not be there yet.
    """
    if kind is None:
        raise click.UsageError("expected --triton or --mlserver")
    if (onnx and kind != "triton") or (pipeline and kind != "mlserver"):
        raise click.UsageError("--onnx is for --triton, and --pipeline for --mlserver")
    try:
        if kind == "triton":
            folder = export_triton(archive, directory, onnx=onnx)
        else:
            folder = export_mlserver(archive, directory, pipeline=pipeline)
    except (MarserveError, OSError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    click.echo(f"written: {folder}")
