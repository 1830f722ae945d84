"""The commands ``archive-model optimize`` and ``archive-model benchmark``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from marserve.archiver.errors import ArchiveError
from marserve.archiver.options import CompatCommand
from marserve.archiver.repack import format_of

Target = Literal["latency", "throughput", "memory"]

FAILED_STATUS = 3
"""Exit status if a mode is outside the tolerance, or one that was named cannot run."""

_PATH = click.Path(path_type=Path)
_SHARED = (
    click.argument("archive", type=_PATH),
    click.option(
        "--modes", help="Modes to try, separated by commas.  [default: all that suit the machine]"
    ),
    click.option("--allow-quantized", is_flag=True, help="Try int8 as well, if none are named."),
    click.option(
        "--tolerance",
        type=float,
        help="Largest difference of a logit from eager float32.  "
        "[default: 0.001 for float32, 0.2 for bfloat16, 0.02 for float16, none for int8]",
    ),
    click.option(
        "--agreement",
        type=click.FloatRange(0, 1),
        default=0.99,
        show_default=True,
        help="Least share of equal best answers.",
    ),
    click.option(
        "--sample",
        type=_PATH,
        help="The model's real inputs: a text a line, or JSON.  [default: samples in the archive]",
    ),
    click.option("--batches", default="1,8", show_default=True, help="Rows of a batch."),
    click.option("--lengths", default="16,128", show_default=True, help="Tokens of a row."),
    click.option(
        "--real-rows",
        type=click.IntRange(0),
        default=32,
        show_default=True,
        help="Rows of the batch with lengths as the samples have; 0 for none.",
    ),
    click.option(
        "--seconds",
        type=click.FloatRange(min=0, min_open=True),
        default=1.0,
        show_default=True,
        help="To time each mode at each batch and length.",
    ),
    click.option(
        "--threads", type=click.IntRange(1), help="Compute threads.  [default: all cores]"
    ),
    click.option(
        "--limit",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        show_default=True,
        help="Most seconds to make or load one mode.",
    ),
    click.option(
        "--programs",
        type=click.Path(path_type=Path, file_okay=False),
        help="Keep the programs that are made in this directory, and find them there next time.",
    ),
    click.option("--json", "json_file", type=_PATH, help="Write the report to this file."),
    click.option("--plot", "plot_file", type=_PATH, help="Draw the report into this PNG."),
)


def _shared(function: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in reversed(_SHARED):
        function = decorate(function)
    return function


@click.command("archive-model benchmark", cls=CompatCommand)
@_shared
def benchmark(**flags: Any) -> None:
    """Measures the modes of execution that ARCHIVE's model can have, and prints one table.

    The exit status is 3 if a mode is outside the tolerance, or one that was named cannot run.
    """
    from marserve.handlers.optimize.study import Study

    with contextlib.closing(Study(flags)) as study:
        study.measure()
        study.tell()
    sys.exit(FAILED_STATUS if study.failed else 0)


@click.command("archive-model optimize", cls=CompatCommand)
@_shared
@click.option(
    "--target",
    type=click.Choice(["latency", "throughput", "memory"]),
    default="latency",
    show_default=True,
    help="What the mode is to be best at.",
)
@click.option(
    "--output", type=_PATH, help="The new archive.  [default: ARCHIVE's name with -optimized]"
)
@click.option(
    "--keep-weights/--drop-weights",
    default=True,
    help="Whether weights stay beside a program; explanations need them.  [default: keep]",
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing archive.")
def optimize(target: Target, output: Path | None, force: bool, **flags: Any) -> None:
    """Finds the best mode of execution for ARCHIVE's model on this machine, and packs it.

    The exit status is 3 if a mode is outside the tolerance, or one that was named cannot run; the
    best of the others is packed all the same.
    """
    from marserve.handlers.optimize.study import Study

    path = output or _beside(flags["archive"])
    if path.exists() and not force:
        raise ArchiveError(f"{path} already exists: give --force/-f to replace it")
    format_of(path)
    with contextlib.closing(Study(flags)) as study:
        study.measure()
        winner = study.choose(target)
        study.tell()
        study.write(path, force)
    click.echo(f"{path}: written, with the mode {winner} as the best for {target}")
    sys.exit(FAILED_STATUS if study.failed else 0)


def _beside(archive: Path) -> Path:
    name = next((s for s in (".tar.gz", ".mar") if archive.name.endswith(s)), "")
    return archive.with_name(f"{archive.name.removesuffix(name)}-optimized{name}")
