"""The kinds of value that a key of ``config.properties`` can have: text in, typed value out."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marserve.frontend.address import parse_address


class Mismatch(ValueError):
    """A value that does not fit, with a reason better than what the kind expects in general."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    Args:
        expected: What would be right, with its article, such as ``an integer >= 1``.
        parse: Turns stripped, non-empty text into the value; raises ValueError if it does not fit.
    """

    expected: str
    parse: Callable[[str], Any]

    def read(self, text: str) -> Any:
        """Returns the value of a text.

        Raises:
            Mismatch: If the text does not fit; its own text says what was expected and found.
        """
        try:
            return self.parse(text)
        except Mismatch:
            raise
        except (ValueError, RecursionError):
            shown = text if len(text) <= 80 else text[:77] + "..."
            raise Mismatch(f'expected {self.expected}, got "{shown}"') from None


def integer(minimum: int, maximum: int = 2**63 - 1) -> Kind:
    """Whole numbers from ``minimum`` to ``maximum``."""

    def parse(text: str) -> int:
        # int() alone would take 1_000 and digits of other scripts.
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not minimum <= int(text) <= maximum:
            raise ValueError(text)
        return int(text)

    bounded = maximum < 2**63 - 1
    limits = f"from {minimum} to {maximum}" if bounded else f">= {minimum}"
    return Kind(f"an integer {limits}", parse)


def choice(*names: str) -> Kind:
    """One of some names, in any case and with blanks around."""

    def parse(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(text)
        return text.lower()

    return Kind("one of " + ", ".join(names), parse)


def address(http_port: int, https_port: int) -> Kind:
    """Addresses, with the ports of those that name none."""

    def parse(text: str) -> Any:
        return parse_address(text, http_port, https_port)

    return Kind("http://host[:port], https://host[:port] or unix:/path", parse)


def _positive(text: str) -> float:
    if not re.fullmatch(r"[0-9]{0,12}\.?[0-9]{0,12}", text) or not float(text) > 0:
        raise ValueError(text)
    return float(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _path(text: str) -> Path:
    if "\0" in text:
        raise ValueError(text)
    return Path(text)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # what Python may change one day is no fault of the file
            return re.compile(text, re.IGNORECASE)
    except (re.error, OverflowError) as error:
        raise Mismatch(f'"{text}" is no regular expression: {error}') from None


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise Mismatch(f"expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise Mismatch(f"expected a JSON object, got {type(value).__name__}")
    return value


@dataclass(frozen=True, slots=True)
class LoadItem:
    """A model to load at start.

    Args:
        name: The name to serve it under; None for the archive's own.
        url: File or directory name in the model store, absolute directory, or URL; ``ALL`` for
            everything in the store.
    """

    name: str | None
    url: str


def _load_items(text: str) -> tuple[LoadItem, ...]:
    items = []
    for part in (part.strip() for part in text.split(",")):
        # An equals sign in a URL's query is no name.
        name, equals, location = part.partition("=")
        named = bool(equals) and "/" not in name and ":" not in name
        url = (location if named else part).strip()
        if not url or (named and not name.strip()):
            raise ValueError(text)
        items.append(LoadItem(name.strip() if named else None, url))
    everything = [item for item in items if item.name is None and item.url.lower() == "all"]
    return (LoadItem(None, "ALL"),) if everything else tuple(items)


TEXT = Kind("text", lambda text: text)
BOOLEAN = Kind("true or false", _boolean)
POSITIVE = Kind("a number > 0", _positive)
PATH = Kind("a path", _path)
PORT = integer(1, 65535)
PATTERN = Kind("a regular expression", _pattern)
PATTERNS = Kind(
    "regular expressions with commas between",
    lambda text: tuple(_pattern(part.strip()) for part in text.split(",") if part.strip()),
)
JSON_OBJECT = Kind("a JSON object", _json_object)
LOAD_ITEMS = Kind("ALL, or names, paths and name=path with commas between", _load_items)
