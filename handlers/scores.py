"""From the scores of classes to objects of label and score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def map_class_to_label(
    probs: Sequence[Sequence[Any]],
    mapping: Mapping[str, Any] | None = None,
    lbl_classes: Sequence[Sequence[Any]] | None = None,
) -> list[dict[str, Any]]:
    """Returns one object of label and score a row.

    Args:
        probs: Scores of every row, or whatever else stands at a class.
        mapping: Class index (as text) to name, or the names under ``object_type_names``; a class
            that has none is called by its index.
        lbl_classes: Classes that the scores are of; by default 0, 1, 2, ... in every row.
    """
    rows = lbl_classes or [range(len(row)) for row in probs]
    return [
        {label_of(each, mapping): score for each, score in zip(classes, scores, strict=False)}
        for classes, scores in zip(rows, probs, strict=False)
    ]


def label_of(index: Any, mapping: Mapping[str, Any] | None) -> str:
    """Returns the name of a class, its index as text if it has none."""
    if not mapping:
        return str(index)
    listed = mapping.get("object_type_names")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return str(listed[int(index)]) if 0 <= int(index) < len(listed) else str(index)
    found = mapping.get(str(index), index)
    return str(found[-1] if isinstance(found, list) and found else found)
