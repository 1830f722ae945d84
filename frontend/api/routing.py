"""From method and path to the function that answers: one table for every HTTP surface.

Paths are split at ``/`` before they are percent-decoded: an encoded slash never makes a segment.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from marserve.frontend.errors import MethodNotAllowed, ResourceNotFound

if TYPE_CHECKING:
    from aiohttp import web

    from marserve.frontend.api.exchange import Exchange

Answer = Callable[["Exchange"], Awaitable["web.StreamResponse"]]

ANY: frozenset[str] = frozenset()
_CACHED_PATHS = 4096
_LONGEST_CACHED = 200  # characters: a client that invents paths must not fill the memory


class Route(NamedTuple):
    """One row of the table.

    Args:
        pattern: Such as ``/predictions/{model}/{version}/{rest*}``; a placeholder is a segment or
            stands beside literal text in one (``{model}:predict``), ``*`` takes all that follow.
        answer: Answers the request.
        methods: Those allowed; ``ANY`` for all.
        token: Kind of token needed, ``inference`` or ``management``; None for none.
        operation: Key into the API description; routes without one are not described.
    """

    pattern: str
    answer: Answer
    methods: frozenset[str] = ANY
    token: str | None = None
    operation: str = ""


class Match(NamedTuple):
    """A route and what its placeholders stand for in a path."""

    route: Route
    parameters: dict[str, str]


class Router:
    """Finds routes; earlier ones win.

    Args:
        routes: The table.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = list(routes)
        self._compiled = [(_compile(route.pattern), route) for route in self.routes]
        self._found: dict[tuple[str, str], Match] = {}

    def match(self, method: str, path: str) -> Match:
        """Returns the route of a request.

        Args:
            method: In capitals.
            path: As sent, percent-encoded, without the query.

        Raises:
            ResourceNotFound: If no route has this path.
            MethodNotAllowed: If one has, but not with this method.
        """
        key = method, path
        found = self._found.get(key)
        if found is None:
            found = self._search(method, path)
            if len(self._found) >= _CACHED_PATHS:
                self._found.clear()
            if len(path) <= _LONGEST_CACHED:
                self._found[key] = found
        return found

    def _search(self, method: str, path: str) -> Match:
        segments = path.rstrip("/")
        known = False
        for pattern, route in self._compiled:
            match = pattern.fullmatch(segments)
            if match is None:
                continue
            known = True
            if not route.methods or method in route.methods:
                return Match(route, {k: unquote(v or "") for k, v in match.groupdict().items()})
        raise MethodNotAllowed if known else ResourceNotFound


def _compile(pattern: str) -> re.Pattern[str]:
    """``{name}`` is one segment, or up to the literal text beside it; ``{name*}`` is the rest."""
    out = ""
    for piece in re.split(r"(/?\{\w+\*?\})", pattern.rstrip("/")):
        if piece.endswith("*}"):
            out += f"(?:/(?P<{piece.strip('/{*}')}>.*))?"
        elif piece.endswith("}"):
            slash, name = piece.partition("{")[::2]
            out += f"{slash}(?P<{name[:-1]}>[^/]+?)"
        else:
            out += re.escape(piece)
    return re.compile(out)
