"""``mlserver.handlers``: methods that runtimes mark as routes of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ATTRIBUTE = "__mlserver_route__"


def custom_handler(
    rest_path: str, rest_method: str = "POST"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a method; routes of a model's own are not served, so the mark has no effect.

    Args:
        rest_path: What the route would be.
        rest_method: Its method.
    """

    def mark(method: Callable[..., Any]) -> Callable[..., Any]:
        setattr(method, ATTRIBUTE, (rest_method, rest_path))
        return method

    return mark


def routes_of(model: Any) -> list[tuple[str, str, str]]:
    """Returns HTTP method, path and name of the marked methods of a model."""
    found = []
    for name in dir(type(model)):
        marked = getattr(getattr(type(model), name, None), ATTRIBUTE, None)
        if marked is not None:
            found.append((*marked, name))
    return found
