"""Plain values read into msgspec structs, field by field, so that each error names key and value.

``msgspec`` alone would say ``Expected `int` >= 1``; a user also wants to see what was found, and
what was meant. Nothing here knows any particular file.
"""

from __future__ import annotations

import datetime
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta, inspect

from marserve.archiver.errors import ConfigError

_MAX_NODES = 100_000
_MAX_DEPTH = 64
_SHOWN_CHARS = 80
_INT_MAX = 2**31 - 1

Natural = Annotated[int, Meta(ge=0, le=_INT_MAX)]
Positive = Annotated[int, Meta(ge=1, le=_INT_MAX)]
UpTo100 = Annotated[int, Meta(ge=0, le=100)]


class Reading:
    """One pass over one file.

    Args:
        where: What to call the file in messages.
        warnings: Receives what is no error.
    """

    def __init__(self, where: str, warnings: list[str]) -> None:
        self.where = where
        self.warnings = warnings

    def fields(
        self,
        kind: type[msgspec.Struct],
        values: Mapping[str, Any],
        path: str,
        *,
        skip: tuple[str, ...] = (),
        fatal: bool = True,
    ) -> dict[str, Any]:
        """Reads the keys of ``values`` that ``kind`` knows; returns its constructor's arguments.

        Args:
            kind: A struct; a field's type may be a struct in its turn.
            values: Plain values; a null counts as absent.
            path: Where ``values`` stand in the file, such as ``$.torchrun``.
            skip: Fields that do not come from the file.
            fatal: Whether a wrong value is an error; a warning otherwise.

        Raises:
            ConfigError: If a value is wrong.
        """
        found = {}
        for field in msgspec.structs.fields(kind):
            value = values.get(field.encode_name)
            if value is None or field.name in skip:
                continue
            read = self._value(_required(field.type), value, f"{path}.{field.encode_name}", fatal)
            if read is not None:
                found[field.name] = read
        return found

    def suggest(
        self,
        values: Mapping[str, Any],
        kind: type[msgspec.Struct],
        path: str,
        *,
        skip: tuple[str, ...] = (),
    ) -> None:
        """Warns of keys that ``kind`` does not know but that look like a slip of one it does."""
        fields = msgspec.structs.fields(kind)
        known = [field.encode_name for field in fields if field.name not in skip]
        for key in values:
            if key not in known and (meant := nearest(str(key), known)):
                self.warn(f"{path}.{key}", f"unknown key, did you mean {meant}?")

    def mapping(self, values: Mapping[str, Any], key: str, path: str) -> dict[str, Any]:
        """Returns the section at ``key``, empty if absent; it must be a mapping."""
        section = values.get(key)
        if section is None:
            return {}
        if not isinstance(section, dict):
            self.problem(f"{path}.{key}", "a mapping", section)
        return dict(section)

    def switch(self, values: Mapping[str, Any], key: str, path: str) -> bool:
        """Returns the boolean at ``key``, false if absent."""
        value = values.get(key)
        if value is not None and not isinstance(value, bool):
            self.problem(f"{path}.{key}", "true or false", value)
        return bool(value)

    def warn(self, path: str, text: str) -> None:
        """Adds a warning."""
        self.warnings.append(f"{self.where}: {path}: {text}")

    @typing.overload
    def problem(self, path: str, right: str, found: object) -> NoReturn: ...
    @typing.overload
    def problem(self, path: str, right: str, found: object, *, fatal: bool) -> None: ...
    def problem(self, path: str, right: str, found: object, *, fatal: bool = True) -> None:
        """Says that ``right`` was expected at ``path``.

        Raises:
            ConfigError: If ``fatal``; otherwise it becomes a warning.
        """
        reason = f"expected {right}, got {_shown(found)}"
        if fatal:
            raise ConfigError(f"{self.where}: {path}", reason)
        self.warn(path, f"{reason}; ignored, unless the handler reads it")

    def _value(self, kind: Any, value: object, path: str, fatal: bool) -> Any:
        """Returns the value converted, None if it is wrong and that is no error."""
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if not isinstance(value, dict):
                return self.problem(path, "a mapping", value, fatal=fatal)
            self.suggest(value, kind, path)
            return kind(**self.fields(kind, value, path, fatal=fatal))
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return self.problem(
                path, _described(inspect.type_info(kind), value), value, fatal=fatal
            )


def nearest(name: str, known: list[str]) -> str | None:
    """Returns the known name that ``name`` most probably stands for, None if none is near."""
    folded = {_folded(candidate): candidate for candidate in known}
    close = difflib.get_close_matches(_folded(name), folded, n=1, cutoff=0.85)
    return folded[close[0]] if close else None


def check_plain(values: Mapping[str, Any], where: str) -> None:
    """Refuses what YAML allows and no configuration needs: aliases in a circle or by the million.

    Raises:
        ConfigError: If the values are nested too deeply, too many, or cannot be sent to a worker.
    """
    count = 0
    stack: list[tuple[object, int]] = [(values, 0)]
    for key in values:
        if not isinstance(key, str):
            raise ConfigError(where, f"expected keys that are texts, got {_shown(key)}")
    while stack:
        value, depth = stack.pop()
        count += 1
        if depth > _MAX_DEPTH or count > _MAX_NODES:
            raise ConfigError(where, f"more than {_MAX_NODES} values or {_MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            stack += ((item, depth + 1) for pair in value.items() for item in pair)
        elif isinstance(value, list | tuple | set):
            stack += ((item, depth + 1) for item in value)
        elif not _is_scalar(value):
            raise ConfigError(where, f"expected numbers, texts and the like, got {_shown(value)}")


def _is_scalar(value: object) -> bool:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return False
    if isinstance(value, str):
        return not any("\ud800" <= char <= "\udfff" for char in value)
    return value is None or isinstance(value, int | float | bytes | datetime.date)


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _required(kind: Any) -> Any:
    """Returns the type without its None."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        (kind,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
    return kind


def _described(info: inspect.Type, value: object) -> str:
    match info:
        case inspect.IntType(ge=int(least)):
            too_large = isinstance(value, int) and value > _INT_MAX
            return f"int from {least} to {_INT_MAX}" if too_large else f"int >= {least}"
        case inspect.BoolType():
            return "true or false"
        case inspect.FloatType():
            return "a number"
        case inspect.StrType():
            return "a text"
        case inspect.LiteralType(values=choices):
            meant = nearest(value, [str(choice) for choice in choices]) if _is_text(value) else None
            hint = f" (did you mean {meant}?)" if meant else ""
            return f"one of {', '.join(map(str, choices))}{hint}"
        case inspect.ListType(item_type=item):
            return f"a list of {_described(item, None)}"
        case _:
            return "a mapping"


def _is_text(value: object) -> typing.TypeGuard[str]:
    return isinstance(value, str)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
