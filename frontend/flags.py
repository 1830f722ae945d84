"""The flags that the command line hands on to the server process, in both directions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from marserve.archiver.options import CompatCommand
from marserve.frontend.config import FLAGS
from marserve.frontend.pidfile import SERVER_MODULE

C = TypeVar("C", bound=Callable[..., Any])

MANY = frozenset({"--models"})
_SPELLED = {**FLAGS, "ts_config": "--ts-config"}

_OPTIONS = (
    click.option("--ts-config", metavar="FILE", help="Settings; TS_CONFIG_FILE names another."),
    click.option("--model-store", metavar="DIR", help="Where the archives are. Required."),
    click.option("--workflow-store", metavar="DIR", help="Where the workflow archives are."),
    click.option(
        "--models",
        "load_models",
        multiple=True,
        metavar="MODEL...",
        help="Models to load: ALL, FILE, NAME=FILE, a directory or a URL.",
    ),
    click.option(
        "--model-control-mode",
        metavar="MODE",
        help="explicit (default): --models and calls; none: all models; poll: all, and changes.",
    ),
    click.option(
        "--repository-poll-secs", metavar="S", help="Seconds between looks at the model store."
    ),
    click.option(
        "--no-config-snapshots",
        "--ncs",
        "config_snapshots",
        is_flag=True,
        help="Neither write nor restore snapshots of the models.",
    ),
    click.option("--cpp-log-config", metavar="FILE", help="Accepted, without effect."),
    click.option(
        "--plugins-path", "--ppath", "plugins_path", metavar="DIR", help="Accepted, without effect."
    ),
    click.option(
        "--disable-token-auth",
        "--dt",
        "disable_token_authorization",
        is_flag=True,
        help="Serve without keys.",
    ),
    click.option(
        "--enable-model-api",
        "enable_model_api",
        is_flag=True,
        help="Allow registering and unregistering models while running.",
    ),
)


def server_options(command: C) -> C:
    """Adds the flags to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def parse_flags(argv: Sequence[str]) -> dict[str, Any]:
    """Returns the flags of a server process.

    Raises:
        click.UsageError: If they are not what ``server_argv`` writes.
    """
    command = CompatCommand("server", many=MANY)
    server_options(command)
    return command.make_context("server", list(argv)).params


def server_argv(flags: Mapping[str, Any]) -> list[str]:
    """Returns the command line of the server process.

    Args:
        flags: As for ``load_config``.
    """
    # -P: the working directory is no place to import modules from.
    argv = [sys.executable, "-P", "-m", SERVER_MODULE]
    for name, value in flags.items():
        spelled = _SPELLED[name]
        if value is True:
            argv.append(spelled)
        elif isinstance(value, (list, tuple)):
            argv += [f"{spelled}={item}" for item in value]
        elif value:
            argv.append(f"{spelled}={os.fspath(value)}")
    return argv
