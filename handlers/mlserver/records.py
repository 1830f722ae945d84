"""Records with checked fields: what runtimes use of pydantic's models, and no more than that."""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self, dataclass_transform

Values = dict[str, Any]


class ValidationError(ValueError):
    """A record was given a value that cannot be; its text names record and field."""


@dataclass_transform(kw_only_default=True)
class Record:
    """A value with named fields, checked and converted when it is made.

    Fields are annotations of the class; those without a default must be given. Mappings become
    records where a field is one. Unknown names are ignored, or kept where the class says so.

    Attributes:
        extra_fields: Whether names that are no fields are kept.
    """

    extra_fields: ClassVar[bool] = False

    def __init__(self, **values: Any) -> None:
        hints = fields_of(type(self))
        given: set[str] = set()
        for name, hint in hints.items():
            if name in values:
                place = f"{type(self).__name__}.{name}"
                self.__dict__[name] = converted(hint, values[name], place)
                given.add(name)
            elif hasattr(type(self), name):
                default = getattr(type(self), name)
                self.__dict__[name] = (
                    default.copy() if isinstance(default, (list, dict)) else default
                )
            else:
                raise ValidationError(f"{type(self).__name__}.{name}: is missing")
        if self.extra_fields:
            extra = {name: value for name, value in values.items() if name not in hints}
            self.__dict__ |= extra
            given |= extra.keys()
        self.__dict__["_given"] = given

    # -- what pydantic's users call ---------------------------------------------------------------

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """Returns the record that a mapping, or a record, stands for."""
        return value if isinstance(value, cls) else cls(**value)

    parse_obj = model_validate

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """Returns the record that a JSON object stands for."""
        return cls.model_validate(json.loads(text))

    parse_raw = model_validate_json

    @classmethod
    def model_construct(cls, **values: Any) -> Self:
        """Returns a record of these values, unchecked."""
        record = cls.__new__(cls)
        for name in fields_of(cls):
            if name not in values and hasattr(cls, name):
                record.__dict__[name] = getattr(cls, name)
        record.__dict__ |= values
        record.__dict__["_given"] = set(values)
        return record

    construct = model_construct

    @property
    def model_fields_set(self) -> set[str]:
        """Names of the fields that were given."""
        return set(self.__dict__["_given"])

    @property
    def model_extra(self) -> Values | None:
        """What was given beside the fields; None where the class keeps nothing of it."""
        if not self.extra_fields:
            return None
        known = fields_of(type(self))
        return {name: value for name, value in self._items() if name not in known}

    def model_dump(
        self,
        *,
        mode: str = "python",
        include: Any = None,
        exclude: Any = None,
        exclude_none: bool = False,
        exclude_unset: bool = False,
        **_: Any,
    ) -> Values:
        """Returns plain values by field name, records within as well."""
        given = self.__dict__["_given"]
        found = {}
        for name, value in self._items():
            if include is not None and name not in include:
                continue
            if exclude is not None and name in exclude:
                continue
            if (exclude_none and value is None) or (exclude_unset and name not in given):
                continue
            found[name] = _plain(value, mode, exclude_none, exclude_unset)
        return found

    def model_dump_json(self, *, indent: int | None = None, **more: Any) -> str:
        """Returns the same as JSON."""
        separators = None if indent else (",", ":")
        plain = self.model_dump(mode="json", **more)
        return json.dumps(plain, indent=indent or None, separators=separators)

    def dict(self, **more: Any) -> Values:
        """The same as ``model_dump``."""
        return self.model_dump(**more)

    def json(self, **more: Any) -> str:
        """The same as ``model_dump_json``."""
        return self.model_dump_json(**more)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy, some fields replaced and unchecked."""
        import copy

        made = type(self).__new__(type(self))
        made.__dict__ |= copy.deepcopy(self.__dict__) if deep else self.__dict__
        made.__dict__["_given"] = self.__dict__["_given"] | set(update or ())
        made.__dict__ |= update or {}
        return made

    def copy(self, **more: Any) -> Self:
        """The same as ``model_copy``."""
        return self.model_copy(**more)

    # -- the language ----------------------------------------------------------------------------

    def _items(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in self.__dict__.items() if name[0] != "_"]

    def __setattr__(self, name: str, value: Any) -> None:
        hint = fields_of(type(self)).get(name)
        if hint is not None:
            value = converted(hint, value, f"{type(self).__name__}.{name}")
        elif not self.extra_fields and name[0] != "_":
            raise ValueError(f"{type(self).__name__} has no field {name!r}")
        if name[0] != "_":
            self.__dict__["_given"].add(name)
        object.__setattr__(self, name, value)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._items())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._items() == other._items()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._items())
        return f"{type(self).__name__}({shown})"

    def __str__(self) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self._items())


def fields_of(kind: type[Record]) -> dict[str, Any]:
    """Returns the types of a record's fields by name, in order."""
    found: dict[str, Any] | None = kind.__dict__.get("_fields")
    if found is None:
        hints = typing.get_type_hints(kind)
        found = {n: h for n, h in hints.items() if typing.get_origin(h) is not ClassVar}
        kind._fields = found  # type: ignore[attr-defined]
    return found


def converted(hint: Any, value: Any, place: str) -> Any:
    """Returns a value as a type wants it.

    Raises:
        ValidationError: If it cannot be; naming the place.
    """
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
        return None if value is None else converted(kinds[0], value, place)
    if origin is list:
        if not isinstance(value, (list, tuple)):
            raise ValidationError(f"{place}: expected a list, got {type(value).__name__}")
        [kind] = typing.get_args(hint)
        return [converted(kind, each, f"{place}[{at}]") for at, each in enumerate(value)]
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ValidationError(f"{place}: expected a mapping, got {type(value).__name__}")
        return dict(value)
    return _single(hint, value, place)


def _single(hint: Any, value: Any, place: str) -> Any:
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value.value if issubclass(hint, enum.Enum) else value
    if issubclass(hint, enum.Enum):
        try:
            return hint(value).value
        except ValueError:
            known = ", ".join(str(each.value) for each in hint)
            raise ValidationError(f"{place}: expected one of {known}, got {value!r:.40}") from None
    if issubclass(hint, Record) and isinstance(value, Mapping):
        return hint(**value)
    wrap = getattr(hint, "wrap", None)
    if wrap is not None:
        return wrap(value)
    try:
        if hint is int and not isinstance(value, (bool, float)):
            return int(value)
        if hint is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if hint is float and not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass  # the error below says it, with the place
    raise ValidationError(f"{place}: expected {hint.__name__}, got {value!r:.60}")


def _plain(value: Any, mode: str, exclude_none: bool, exclude_unset: bool) -> Any:
    if isinstance(value, Record):
        return value.model_dump(mode=mode, exclude_none=exclude_none, exclude_unset=exclude_unset)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode=mode)
    if isinstance(value, (list, tuple)):
        return [_plain(each, mode, exclude_none, exclude_unset) for each in value]
    if isinstance(value, dict):
        return {k: _plain(v, mode, exclude_none, exclude_unset) for k, v in value.items()}
    if mode == "json":
        if isinstance(value, bytes):
            return value.decode()
        if hasattr(value, "tolist"):
            return value.tolist()
    return value
