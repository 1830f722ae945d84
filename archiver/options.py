"""What users of argparse programs type and click does not know, for both command lines.

Long options may be shortened to any unambiguous beginning (``--disable-token``), an option may
take several values in a row (``--models A B C``), and a forgotten value is an error instead of
swallowing the next option.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

import click

_NEGATIVE_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")


class CompatCommand(click.Command):
    """A click command that reads its arguments the way argparse does.

    ``-h`` asks for help like ``--help``; exit status 2 stands for wrong usage, as always in click.

    Args:
        *args: As for ``click.Command``.
        many: Long options that take one or more values, such as ``{"--models"}``; declare each of
            them with ``multiple=True``.
        **kwargs: As for ``click.Command``.
    """

    def __init__(self, *args: Any, many: Collection[str] = (), **kwargs: Any) -> None:
        given = kwargs.pop("context_settings", None) or {}
        kwargs["context_settings"] = {"help_option_names": ["-h", "--help"], **given}
        super().__init__(*args, **kwargs)
        self.many = frozenset(many)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Spells the arguments out for click, then lets it parse them.

        Raises:
            click.UsageError: If an option is ambiguous, unknown or lacks its value.
        """
        return super().parse_args(ctx, list(self._spell_out(ctx, args)))

    def _spell_out(self, ctx: click.Context, args: list[str]) -> Iterator[str]:
        known = self._options(ctx)
        rest = list(reversed(args))
        while rest:
            token = rest.pop()
            if token == "--":  # noqa: S105  # everything after it is a plain argument
                yield token
                yield from reversed(rest)
                return
            name, equals, value = token.partition("=") if token[:2] == "--" else (token, "", "")
            name = _complete(name, known, ctx)
            if name in self.many:
                values = [value] if equals else []
                while rest and not _looks_like_option(rest[-1]):
                    values.append(rest.pop())
                yield from _repeated(name, values, ctx)
                continue
            yield name + equals + value
            if not equals and name in known and _takes_value(known[name]):
                yield _following(name, rest, ctx)

    def _options(self, ctx: click.Context) -> dict[str, click.Option]:
        options = (param for param in self.get_params(ctx) if isinstance(param, click.Option))
        return {
            name: option for option in options for name in (*option.opts, *option.secondary_opts)
        }


def _complete(name: str, known: dict[str, click.Option], ctx: click.Context) -> str:
    """Returns the one long option that begins with ``name``, or ``name`` where there is none."""
    if not name.startswith("--") or name in known:
        return name
    matches = [candidate for candidate in known if candidate.startswith(name)]
    if len({id(known[match]) for match in matches}) > 1:
        message = f"ambiguous option: {name} could match {', '.join(sorted(matches))}"
        raise click.UsageError(message, ctx)
    return matches[0] if matches else name


def _looks_like_option(token: str) -> bool:
    """Whether argparse would: a dash in front, yet no lone dash, no number, no text with blanks."""
    if len(token) < 2 or token[0] != "-" or " " in token:
        return False
    return _NEGATIVE_NUMBER.fullmatch(token) is None


def _takes_value(option: click.Option) -> bool:
    return not option.is_flag and not option.count and option.nargs == 1


def _repeated(name: str, values: list[str], ctx: click.Context) -> Iterator[str]:
    if not values:
        raise click.UsageError(f"Option '{name}' requires at least one value.", ctx)
    for value in values:
        yield from (name, value)


def _following(name: str, rest: list[str], ctx: click.Context) -> str:
    if not rest or _looks_like_option(rest[-1]):
        raise click.UsageError(f"Option '{name}' requires an argument.", ctx)
    return rest.pop()
