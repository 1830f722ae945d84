"""Reads and writes Java ``.properties`` text.

Source: the load and store methods of ``java.util.Properties`` (Java SE API documentation). One
difference: bytes are UTF-8, and ISO-8859-1 (Java's rule) only where they are not valid UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from marserve.archiver.errors import ConfigError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {value: f"\\{key}" for key, value in _ESCAPES.items()}
_LINE_END = re.compile(r"\r\n|\n|\r")
_HEX = re.compile(r"[0-9a-fA-F]{4}")


@dataclass(frozen=True, slots=True)
class Property:
    """One entry of a file.

    Args:
        key: The unescaped key.
        value: The unescaped value.
        line: Number of the line on which the entry begins, from 1.
    """

    key: str
    value: str
    line: int


def read_properties(path: Path) -> list[Property]:
    """Returns the entries of a file in their order, doubles included.

    Raises:
        ConfigError: If the file cannot be read, or holds a malformed escape.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, path.name)


def parse_properties(text: str, where: str = "config.properties") -> list[Property]:
    r"""Returns the entries of a text in their order, doubles included.

    Args:
        text: Lines of ``key=value``, ``key: value`` or ``key value``.
        where: Name of the file for messages.

    Raises:
        ConfigError: If a ``\u`` is not followed by four hexadecimal digits.
    """
    entries = []
    for number, line in _logical_lines(text):
        key, value = _split(line)
        place = f"{where}:{number}"
        entries.append(Property(_unescape(key, place), _unescape(value, place), number))
    return entries


def format_properties(entries: Mapping[str, str]) -> str:
    """Returns text that ``parse_properties`` reads back as the same entries."""
    lines = [f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in entries.items()]
    return "".join(lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of each entry, continuation lines joined, comments left out."""
    parts: list[str] = []
    start = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANK)
        if not parts:
            if not line or line[0] in "#!":
                continue
            start = number
        # An odd number of backslashes at the end: the last one is no escaped backslash.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield start, "".join([*parts, line])
        parts = []
    if parts:
        yield start, "".join(parts)


def _split(line: str) -> tuple[str, str]:
    """Cuts at the first blank, ``=`` or ``:`` that no backslash escapes."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    characters = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\":
            # A backslash that ends the text escapes nothing and vanishes, as in Java.
            character = text[at : at + 1]
            at += 1
            if character == "u":
                character = _unicode(text[at : at + 4], where)
                at += 4
            else:
                character = _ESCAPES.get(character, character)
        characters.append(character)
    # Java writes a character above U+FFFF as two \u escapes, a surrogate pair.
    return "".join(characters).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unicode(digits: str, where: str) -> str:
    if not _HEX.fullmatch(digits):
        raise ConfigError(where, rf"expected four hexadecimal digits after \u, got {digits!r}")
    return chr(int(digits, 16))


def _escape(text: str, *, key: bool = False) -> str:
    escaped = []
    for at, character in enumerate(text):
        if character in _WRITTEN and (character != "\t" or key or at == 0):
            escaped.append(_WRITTEN[character])
        elif character == "\\" or (key and character in "=:#! ") or (at == 0 and character == " "):
            escaped.append("\\" + character)
        else:
            escaped.append(character)
    return "".join(escaped)
