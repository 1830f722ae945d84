"""The names of a model's classes, from ``index_to_name.json`` or from the model's own config."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marserve.archiver.errors import HandlerLoadError

FILE_NAME = "index_to_name.json"


def load_label_mapping(path: str | Path) -> dict[str, Any] | None:
    """Reads an ``index_to_name.json``.

    Args:
        path: The file: an object of class index to name (of a list of names the last one counts),
            or one with the single key ``object_type_names`` and a list of names.

    Returns:
        Class index (as text) to name, in the file's order, or the names under
        ``object_type_names``; None if there is no such file.

    Raises:
        HandlerLoadError: If the file is no such JSON.
    """
    path = Path(path)
    if not path.is_file():
        return None
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise HandlerLoadError(f"{path.name}: cannot be read as JSON: {error}") from None
    if not isinstance(plain, dict):
        expected = 'an object such as {"0": "negative", "1": "positive"}'
        raise HandlerLoadError(f"{path.name}: expected {expected}, got {type(plain).__name__}")
    if isinstance(plain.get("object_type_names"), list):
        return plain
    return {key: _name(path, key, value) for key, value in plain.items()}


def _name(path: Path, key: str, value: object) -> str:
    name = value[-1] if isinstance(value, list) and value else value
    if not isinstance(name, str):
        raise HandlerLoadError(
            f'{path.name}: "{key}": expected a name or a list of names, got {value!r:.80}'
        )
    return name


def class_names(mapping: Mapping[str, Any] | None, fallback: Mapping[int, str]) -> list[str]:
    """Returns the name of every class, in the order of their indices.

    Args:
        mapping: What ``load_label_mapping`` returned. Its key ``label_list`` may hold all names in
            one text, such as ``[O, B-PER, I-PER]``.
        fallback: The model's own names, used where there is no mapping; its length is the number
            of classes.

    Raises:
        HandlerLoadError: If the mapping does not name every class of the model.
    """
    if not mapping:
        return [str(fallback[index]) for index in sorted(fallback)]
    names = _listed(mapping)
    if names is None:
        missing = [str(index) for index in sorted(fallback) if str(index) not in mapping]
        if missing:
            raise HandlerLoadError(
                f"{FILE_NAME}: names no class {', '.join(missing[:5])}; the model has"
                f" {len(fallback)} classes, 0 to {len(fallback) - 1}"
            )
        return [mapping[str(index)] for index in sorted(fallback)]
    if len(names) != len(fallback):
        raise HandlerLoadError(
            f"{FILE_NAME}: lists {len(names)} names ({', '.join(names[:5])}, ...), but the model"
            f" has {len(fallback)} classes"
        )
    return names


def _listed(mapping: Mapping[str, Any]) -> list[str] | None:
    listed = mapping.get("label_list", mapping.get("object_type_names"))
    if isinstance(listed, str):
        pieces = listed.strip().strip("[]").split(",")
        return [piece.strip().strip("'\"") for piece in pieces if piece.strip()]
    if isinstance(listed, Sequence):
        return [str(name) for name in listed]
    return None
