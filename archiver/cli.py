"""The command ``archive-model``: packs a model, or looks at an archive.

Exit status: 0 for success, 1 for an error in the input (told on stderr), 2 for wrong usage.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from tqdm import tqdm

from marserve.archiver.commands import command_names, find_command, pack_exported
from marserve.archiver.errors import MarserveError
from marserve.archiver.handler_options import Quantization, SaveMode
from marserve.archiver.inspection import inspect_archive, verify_archive
from marserve.archiver.manifest import DEFAULT_VERSION, RUNTIMES
from marserve.archiver.options import CompatCommand
from marserve.archiver.package import package
from marserve.archiver.pretrained import TASKS, pretrained_spec
from marserve.archiver.spec import BUILTIN_HANDLERS, FORMATS, PackageSpec

_PATH = click.Path(path_type=Path)
_EPILOG = (
    "To look at an archive: archive-model inspect PATH, archive-model verify PATH. "
    "Further commands, each with a --help of its own: "
)


class _Pack(CompatCommand):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Looks the further commands up only when somebody asks for help."""
        self.epilog = f"{_EPILOG}{', '.join(command_names())}."
        super().format_epilog(ctx, formatter)


@click.command("archive-model", cls=_Pack)
@click.option("--model-name", metavar="NAME", required=True, help="Name, also of the archive.")
@click.option("--version", "-v", help="Version of the model, any text.")
@click.option(
    "--handler",
    metavar="HANDLER",
    help="A Python file, file:function, or one of: " + ", ".join(BUILTIN_HANDLERS) + ".",
)
@click.option("--serialized-file", type=_PATH, help="Weights.")
@click.option("--model-file", type=_PATH, help="Python file with the model's class.")
@click.option(
    "--extra-files", default="", help="Files, patterns and directories, separated by commas."
)
@click.option("--runtime", type=click.Choice(RUNTIMES), default="python", show_default=True)
@click.option(
    "--export-path", type=_PATH, default=Path(), help="Where to put the archive.  [default: here]"
)
@click.option(
    "--archive-format",
    type=click.Choice(FORMATS),
    default="default",
    show_default=True,
    help="default: compressed .mar; zip-store: uncompressed .mar; tgz: .tar.gz; "
    "no-archive: a directory.",
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing archive.")
@click.option("--requirements-file", "-r", type=_PATH, help="Python packages of this model.")
@click.option("--config-file", "-c", type=_PATH, help="The model-config.yaml.")
@click.option("--no-check", is_flag=True, help="Pack without a look at what the files contain.")
@click.option(
    "--from-pretrained",
    type=_PATH,
    metavar="DIR",
    help="Pack what save_pretrained() wrote: handler, weights, tokenizer, labels and config.",
)
@click.option("--task", type=click.Choice(list(TASKS)), help="What the pretrained model does.")
@click.option(
    "--save-mode",
    type=click.Choice(get_args(SaveMode)),
    help="What the pretrained model is run from; all but pretrained need PyTorch to pack.",
)
@click.option(
    "--quantization",
    type=click.Choice(get_args(Quantization)),
    help="With --save-mode: numbers of fewer bits.",
)
@click.pass_context
def pack(
    ctx: click.Context,
    /,
    *,
    no_check: bool,
    from_pretrained: Path | None,
    task: str,
    save_mode: str | None,
    quantization: str | None,
    **flags: Any,
) -> None:
    """Packs a model into an archive that a model server can load."""
    _require(ctx, flags, from_pretrained, task)
    program = save_mode not in (None, "pretrained")
    if (program or quantization) and from_pretrained is None:
        raise click.UsageError("--save-mode and --quantization are for --from-pretrained", ctx)
    if quantization and not program:
        raise click.UsageError("--quantization needs --save-mode onnx or openvino", ctx)
    flags["version"] = flags["version"] or DEFAULT_VERSION
    flags["handler"] = flags["handler"] or ""
    spec = PackageSpec(check=not no_check, **flags)
    with contextlib.ExitStack() as stack:
        if from_pretrained is not None:
            spec = stack.enter_context(pretrained_spec(spec, from_pretrained, task))
        if program:
            pack_exported(spec, str(save_mode), quantization, _package)
        else:
            _package(spec)


def _package(spec: PackageSpec) -> Path:
    with tqdm(unit="B", unit_scale=True, disable=None, leave=False) as bar:
        return package(spec, lambda done, total: _show(bar, done, total))


@click.command("archive-model inspect", cls=CompatCommand)
@click.argument("path", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(path: Path, *, as_json: bool) -> None:
    """Shows what is in an archive: files, sizes, digests, manifest and configuration."""
    contents = inspect_archive(path)
    text = json.dumps(contents.as_dict(), indent=2, default=str) if as_json else contents.render()
    click.echo(text)


@click.command("archive-model verify", cls=CompatCommand)
@click.argument("path", type=_PATH)
def verify(path: Path) -> None:
    """Checks an archive: digests, layout, code, configuration, weights and labels."""
    problems = verify_archive(path)
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    if problems:
        sys.exit(1)
    click.echo(f"{path}: sound")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits.

    Args:
        arguments: Without the program's name; those of the process by default.
    """
    args = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)
    # Unwinds the stack, so that no unfinished archive is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    own = {"inspect": inspect, "verify": verify}
    with told_errors():
        if args and not args[0].startswith("-"):
            command = own.get(args[0]) or find_command(args[0])
            if command is not None:
                command.main(args[1:], prog_name=command.name)
        pack.main(args, prog_name="archive-model")


@contextlib.contextmanager
def told_errors() -> Iterator[None]:
    """Prints an error in the input to stderr and exits with status 1."""
    try:
        yield
    except (MarserveError, OSError) as error:
        for line in str(error).splitlines():
            click.echo(f"error: {line}", err=True)
        sys.exit(1)


def _require(
    ctx: click.Context, flags: dict[str, Any], from_pretrained: Path | None, task: str | None
) -> None:
    missing = []
    if from_pretrained is None:
        missing = [f"--{name}" for name in ("version", "handler") if not flags[name]]
        if task:
            missing.append("--from-pretrained (which --task is for)")
    elif flags["serialized_file"]:
        raise click.UsageError("--from-pretrained finds the weights: omit --serialized-file", ctx)
    elif not task:
        missing.append("--task")
    if missing:
        raise click.UsageError(f"the following options are required: {', '.join(missing)}", ctx)


def _show(bar: tqdm[Any], done_bytes: int, total_bytes: int) -> None:
    bar.total = total_bytes
    bar.update(done_bytes - bar.n)
