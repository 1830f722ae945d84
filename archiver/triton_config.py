"""config.pbtxt checked against its schema: plain values with defaults, warnings, errors by line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from marserve.archiver.errors import ConfigError
from marserve.archiver.pbtxt import Message, Scalar, parse_pbtxt
from marserve.archiver.schema import nearest
from marserve.archiver.triton_schema import SCHEMA, Key, Schema

FILE_NAME = "config.pbtxt"
MAX_CONFIG_BYTES = 1 << 20
_TRUE = frozenset({"true", "True", "t", "1"})
_FALSE = frozenset({"false", "False", "f", "0"})
_EMPTY: dict[str, Any] = {"text": "", "int": 0, "float": 0.0, "bool": False}


@dataclass(frozen=True, slots=True)
class TritonConfig:
    """A checked configuration.

    Args:
        plain: All keys with their defaults, but sections that are absent are absent. Dimensions are
            numbers, enums are words, maps are dicts.
        warnings: One text for each key that has no effect, with file and line.
        lines: Where the keys at the top stand, from 1.
        where: What the file is called in messages.
    """

    plain: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    where: str = FILE_NAME

    def refuse(self, key: str, why: str, hint: str = "") -> NoReturn:
        """Refuses what stands at a key at the top.

        Raises:
            ConfigError: Always.
        """
        name = key.partition("[")[0].partition(".")[0]
        line = f"line {self.lines[name]}: " if name in self.lines else ""
        raise ConfigError(f"{self.where}: {line}{key}", why, hint)

    def warn(self, key: str, text: str) -> None:
        """Notes that a key at the top has not the effect that it would have in Triton."""
        self.warnings.append(
            _place(self.where, self.lines.get(key.partition("[")[0], 1), key, text)
        )


def load_triton_config(path: Path) -> TritonConfig:
    """Reads a config.pbtxt.

    Raises:
        ConfigError: If it cannot be read, or a key or value is wrong; names file, line and key.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(path.name, f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(path.name, f"larger than {MAX_CONFIG_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(path.name, f"is no UTF-8 text: byte {error.start}") from None
    return read_triton_config(text, path.name)


def read_triton_config(text: str, where: str = FILE_NAME) -> TritonConfig:
    """Reads the text of a config.pbtxt; an empty one is an empty configuration.

    Raises:
        ConfigError: If a key or value is wrong.
    """
    message = parse_pbtxt(text, where)
    reading = _Reading(where, [])
    plain = reading.message(message, SCHEMA, "")
    lines = {name: values[0].line for name, values in message.fields.items() if values}
    return TritonConfig(plain, reading.warnings, lines, where)


def completed(plain: dict[str, Any]) -> TritonConfig:
    """Returns a configuration that was made otherwise, such as by a model, with all defaults.

    Raises:
        ConfigError: If a key or value is wrong.
    """
    return read_triton_config("\n".join(render(plain, SCHEMA)), "configuration")


def render(plain: dict[str, Any], schema: Schema = SCHEMA, indent: str = "") -> Iterator[str]:
    """Yields the lines of a config.pbtxt that says the same.

    Args:
        plain: As in ``TritonConfig``; keys that the schema does not know are refused.
        schema: Of the message.
        indent: In front of each line.

    Raises:
        ConfigError: If there is such a key.
    """
    for name, value in plain.items():
        if name not in schema:
            raise ConfigError(f"configuration: {name}", "unknown key")
        key = schema[name]
        if key.mapped:
            for word, item in value.items():
                yield f"{indent}{name} {{"
                yield f"{indent}  key: {_quoted(str(word))}"
                yield from _field("value", key, item, f"{indent}  ")
                yield f"{indent}}}"
            continue
        for item in value if key.repeated else [value]:
            yield from _field(name, key, item, indent)


def _field(name: str, key: Key, value: Any, indent: str) -> Iterator[str]:
    if isinstance(key.kind, dict):
        yield f"{indent}{name} {{"
        yield from render(value, key.kind, f"{indent}  ")
        yield f"{indent}}}"
    elif key.kind == "text":
        yield f"{indent}{name}: {_quoted(str(value))}"
    elif isinstance(value, bool):
        yield f"{indent}{name}: {str(value).lower()}"
    else:
        yield f"{indent}{name}: {value}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _place(where: str, line: int, path: str, text: str) -> str:
    return f"{where}: line {line}: {path}: {text}"


class _Reading:
    def __init__(self, where: str, warnings: list[str]) -> None:
        self._where = where
        self.warnings = warnings

    def message(self, message: Message, schema: Schema, path: str) -> dict[str, Any]:
        for name, values in message.fields.items():
            if name not in schema:
                meant = nearest(name, list(schema))
                hint = f"did you mean {meant}?" if meant else f"known: {', '.join(schema)}"
                line = values[0].line if values else message.line
                self._refuse(line, path + name, "unknown key", hint)
        found: dict[str, Any] = {}
        for name, key in schema.items():
            values = message.fields.get(name, [])
            if values and key.note:
                self.warnings.append(
                    _place(self._where, values[0].line, path + name, f"has no effect: {key.note}")
                )
            if key.mapped:
                found[name] = self._map(values, key, path + name)
            elif key.repeated:
                each = enumerate(values)
                found[name] = [self._value(v, key, f"{path}{name}[{i}]") for i, v in each]
            elif values:
                found[name] = self._single(values, key, path + name)
            elif not isinstance(key.kind, dict):
                found[name] = key.kind[0] if isinstance(key.kind, tuple) else _EMPTY[key.kind]
        return found

    def _single(self, values: list[Scalar | Message], key: Key, path: str) -> Any:
        if len(values) > 1:
            self._refuse(values[1].line, path, f"is there {len(values)} times, expected once")
        return self._value(values[0], key, path)

    def _map(self, values: list[Scalar | Message], key: Key, path: str) -> dict[str, Any]:
        found = {}
        for entry in values:
            if not isinstance(entry, Message):
                self._refuse(entry.line, path, "expected { key: ... value: ... }")
            word = entry.fields.get("key", [])
            if len(word) != 1 or not isinstance(word[0], Scalar):
                self._refuse(entry.line, path, "expected one key and one value")
            name = word[0].value
            value = entry.fields.get("value", [])
            if not value and isinstance(key.kind, dict):
                value = [Message(entry.line)]
            if len(value) != 1:
                self._refuse(entry.line, f"{path}[{name!r}]", "expected one value")
            found[name] = self._value(value[0], key, f"{path}[{name!r}]")
        return found

    def _value(self, value: Scalar | Message, key: Key, path: str) -> Any:
        kind = key.kind
        if isinstance(kind, dict):
            if not isinstance(value, Message):
                self._refuse(value.line, path, f"expected a message in braces, got {value.value!r}")
            return self.message(value, kind, f"{path}.")
        if isinstance(value, Message):
            self._refuse(value.line, path, "expected one value, got a message in braces")
        if isinstance(kind, tuple):
            return self._word(value, kind, path)
        if kind == "text":
            if value.kind != "text":
                self._refuse(value.line, path, f"expected a text in quotes, got {value.value}")
            return value.value
        if kind == "bool":
            if value.kind != "text" and value.value in _TRUE | _FALSE:
                return value.value in _TRUE
            self._refuse(value.line, path, f"expected true or false, got {value.value!r}")
        return self._number(value, kind, path)

    def _word(self, value: Scalar, words: tuple[str, ...], path: str) -> str:
        if value.kind == "word" and value.value in words:
            return value.value
        if value.kind == "number" and value.value.isdecimal() and int(value.value) < len(words):
            return words[int(value.value)]
        meant = nearest(value.value, list(words))
        hint = f"did you mean {meant}?" if meant else ""
        why = f"expected one of {', '.join(words)}, got {value.value!r}"
        return self._refuse(value.line, path, why, hint)

    def _number(self, value: Scalar, kind: str, path: str) -> int | float:
        try:
            if value.kind == "text":
                raise ValueError
            if kind == "int":
                octal = value.value.lstrip("-").startswith("0") and value.value.isdecimal()
                number = int(value.value, 8 if octal and len(value.value) > 1 else 0)
                if not -(2**63) <= number < 2**64:
                    raise ValueError
                return number
            real = float(value.value.rstrip("fF") if value.kind == "number" else value.value)
        except ValueError:
            right = "a whole number" if kind == "int" else "a number"
            self._refuse(value.line, path, f"expected {right}, got {value.value!r}")
        if not math.isfinite(real):
            self._refuse(value.line, path, f"expected a number, got {value.value!r}")
        return real

    def _refuse(self, line: int, path: str, why: str, hint: str = "") -> NoReturn:
        raise ConfigError(f"{self._where}: line {line}: {path}", why, hint)
