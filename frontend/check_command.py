"""``serve check PATH``: what will not work here, or will behave differently, known beforehand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from marserve.archiver.errors import MarserveError
from marserve.frontend.review import review


@click.command("check", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH...",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of lines.")
def check(paths: tuple[Path, ...], as_json: bool) -> None:
    """Reports what will not work here, or will behave differently, with the remedy.

    PATH is a model store, an archive, a workflow archive, a config.properties, a model-config.yaml
    or the Python file of a handler. No code of it is run and no model is loaded. The exit status is
    1 if something will not work.
    """
    findings = []
    for path in paths:
        try:
            findings += review(path)
        except (MarserveError, OSError) as error:
            click.echo(str(error), err=True)
            sys.exit(2)
    errors = sum(finding.level == "error" for finding in findings)
    if as_json:
        click.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            click.echo(finding.render())
        notes = len(findings) - errors
        click.echo(f"{errors} {_word('error', errors)}, {notes} {_word('note', notes)}")
    sys.exit(1 if errors else 0)


def _word(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
