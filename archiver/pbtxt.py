"""Protobuf's text format read into plain trees that know their lines; no schema, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from marserve.archiver.errors import ConfigError

_MAX_DEPTH = 32
_MAX_FIELDS = 100_000
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f\v]+|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<number>-?\s*(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?))
    |(?P<word>-?[A-Za-z_][A-Za-z0-9_.\-/]*)
    |(?P<mark>[\[\]{}<>:;,])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that is no message.

    Args:
        kind: ``text``, ``number`` or ``word`` (an enum's value, true, false, inf).
        value: As written; of a text, what it stands for.
        line: From 1.
    """

    kind: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Message:
    """Fields by name, each with all of its values, in order.

    Args:
        line: Where it begins, from 1.
        fields: A repeated key's values are appended to one list.
    """

    line: int
    fields: dict[str, list[Scalar | Message]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def parse_pbtxt(text: str, where: str) -> Message:
    """Reads a message.

    Args:
        text: Of the file.
        where: What to call it in errors.

    Raises:
        ConfigError: Naming the line, if it is no text format.
    """
    parser = _Parser(list(_tokens(text, where)), where)
    return parser.message(1, end=None, depth=0)


def _tokens(text: str, where: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError(f"{where}: line {line}", f"cannot be read at {text[at : at + 20]!r}")
        at = match.end()
        if match.lastgroup == "newline":
            line += 1
        elif match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match.group(), line)


class _Parser:
    def __init__(self, tokens: list[_Token], where: str) -> None:
        self._tokens = tokens
        self._where = where
        self._at = 0
        self._count = 0

    def message(self, line: int, end: str | None, depth: int) -> Message:
        if depth > _MAX_DEPTH:
            self._refuse(line, f"messages are nested deeper than {_MAX_DEPTH}")
        found = Message(line)
        while True:
            token = self._next()
            if token is None:
                if end is not None:
                    self._refuse(line, f"what begins here is not closed by {end!r}")
                return found
            if token.kind == "mark" and token.text in ",;":
                continue
            if token.kind == "mark" and token.text == end:
                return found
            if token.kind != "word":
                self._refuse(token.line, f"expected the name of a field, got {token.text!r}")
            self._count += 1
            if self._count > _MAX_FIELDS:
                self._refuse(token.line, f"more than {_MAX_FIELDS} fields")
            found.fields.setdefault(token.text, []).extend(self._values(token, depth))

    def _values(self, name: _Token, depth: int) -> list[Scalar | Message]:
        token = self._next()
        colon = token is not None and token.text == ":" and token.kind == "mark"
        if colon:
            token = self._next()
        if token is None:
            self._refuse(name.line, f"{name.text}: has no value")
        if token.kind == "mark" and token.text == "[":
            return self._list(name, token.line, depth)
        if not colon and not (token.kind == "mark" and token.text in _CLOSING):
            self._refuse(name.line, f"{name.text}: expected ':' or '{{', got {token.text!r}")
        return [self._value(name, token, depth)]

    def _list(self, name: _Token, line: int, depth: int) -> list[Scalar | Message]:
        found: list[Scalar | Message] = []
        while True:
            token = self._next()
            if token is None:
                self._refuse(line, f"{name.text}: what begins here is not closed by ']'")
            if token.kind == "mark" and token.text == "]":
                return found
            if token.kind == "mark" and token.text == "," and found:
                continue
            found.append(self._value(name, token, depth))

    def _value(self, name: _Token, token: _Token, depth: int) -> Scalar | Message:
        if token.kind == "mark":
            if token.text in _CLOSING:
                return self.message(token.line, _CLOSING[token.text], depth + 1)
            self._refuse(token.line, f"{name.text}: expected a value, got {token.text!r}")
        if token.kind != "text":
            return Scalar(token.kind, "".join(token.text.split()), token.line)
        pieces = [_unescaped(token.text)]
        while self._at < len(self._tokens) and self._tokens[self._at].kind == "text":
            pieces.append(_unescaped(self._tokens[self._at].text))  # texts side by side are one
            self._at += 1
        return Scalar("text", "".join(pieces), token.line)

    def _next(self) -> _Token | None:
        if self._at == len(self._tokens):
            return None
        self._at += 1
        return self._tokens[self._at - 1]

    def _refuse(self, line: int, why: str) -> NoReturn:
        raise ConfigError(f"{self._where}: line {line}", why)


def _unescaped(quoted: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "01234567":
            return chr(int(code, 8))
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 else "\ufffd"
        return _ESCAPES.get(code, code)

    return _ESCAPE.sub(one, quoted[1:-1])
