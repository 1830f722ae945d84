"""``serve``: starts, stops and describes the server, with the flags of ``torchserve``."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import marserve
from marserve.archiver.errors import ConfigError, MarserveError
from marserve.archiver.options import CompatCommand
from marserve.frontend import control
from marserve.frontend.config import describe_config, load_config
from marserve.frontend.flags import MANY, server_options

_CONTRACT = "0.12.0"
_COMMANDS = {  # module and name: a server that starts needs none of them
    "check": ("marserve.frontend.check_command", "check"),
    "export": ("marserve.frontend.export_command", "export"),
    "install-names": ("marserve.frontend.names", "command"),
}
_ACTIONS = ("version", "start", "stop", "status", "print_config")


class _Serve(CompatCommand):
    """``serve`` itself takes flags alone, as torchserve does; what else it can do has a word."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Runs what the first word names, or else the server."""
        words = args[0] if args else extra.pop("args", None)
        given = list(sys.argv[1:] if words is None else words)
        if given and given[0] in _COMMANDS:
            module, name = _COMMANDS[given[0]]
            command: click.Command = getattr(import_module(module), name)
            return command.main(given[1:], **{**extra, "prog_name": f"serve {given[0]}"})
        return super().main(given, **extra)


@click.command(
    cls=_Serve, many=MANY, epilog="Also: serve check PATH, serve export, serve install-names DIR."
)
@click.option("--version", "-v", is_flag=True, help="Print the version.")
@click.option("--start", is_flag=True, help="Start the server; also without any action.")
@click.option("--stop", is_flag=True, help="Stop it: accepted requests are answered first.")
@click.option(
    "--status", is_flag=True, help="Show process, addresses and models; 3 if not running."
)
@click.option("--print-config", is_flag=True, help="Show each setting and where it comes from.")
@click.option("--foreground", is_flag=True, help="Stay in the foreground.")
@server_options
@click.option("--log-config", metavar="FILE", help="Accepted, without effect.")
def main(**given: Any) -> None:
    """Serves PyTorch models over HTTP."""
    actions = [name for name in _ACTIONS if given.pop(name)]
    if len(actions) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in actions)
        raise click.UsageError(f"{names} cannot be combined")
    try:
        sys.exit(_act(actions[0] if actions else "start", given))
    except MarserveError as error:
        prefix = "Invalid configuration: " if isinstance(error, ConfigError) else ""
        click.echo(f"{prefix}{error}", err=True)
        sys.exit(1)


def _act(action: str, given: dict[str, Any]) -> int:
    """Returns the exit status."""
    if action == "version":
        as_torchserve = Path(sys.argv[0]).name == "torchserve"  # scripts look for its words
        ours = f"marserve {marserve.__version__}"
        theirs = f"TorchServe Version is {_CONTRACT} ({ours})"
        click.echo(theirs if as_torchserve else f"{ours} (TorchServe API {_CONTRACT})")
        return 0
    _check_temporary_directory()
    if action == "stop":
        return control.stop()
    if action == "status":
        return control.status()
    foreground: bool = given.pop("foreground")
    _accept_without_effect(given)
    showing = action == "print_config"
    config = load_config(given, os.environ, Path.cwd(), store_needed=not showing)
    if showing:
        click.echo(describe_config(config), nl=False)
        for notice in config.notices:
            click.echo(f"# {notice}")
        return 0
    return control.start(given, foreground=foreground)


def _check_temporary_directory() -> None:
    """The pid file is there; a directory that was asked for must not be passed over silently."""
    for variable in ("TMPDIR", "TEMP", "TMP"):
        path = os.environ.get(variable)
        if path and not Path(path).is_dir():
            raise ConfigError(variable, f"Invalid temp directory: {path}", "no such directory")
    try:
        tempfile.gettempdir()
    except OSError as error:
        raise ConfigError("TMPDIR", f"no usable temporary directory: {error.strerror}") from None


def _accept_without_effect(given: dict[str, Any]) -> None:
    log_config, cpp_log_config = given.pop("log_config"), given["cpp_log_config"]
    for flag, path in (("--log-config", log_config), ("--cpp-log-config", cpp_log_config)):
        if path and not Path(path).is_file():
            raise ConfigError(flag, f"file not found: {path}")
    if log_config:
        click.echo("--log-config has no effect: log4j2 settings are not read here", err=True)
