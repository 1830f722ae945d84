"""``ts.utils.util``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.errors import PredictionException
from marserve.handlers.introspection import check_valid_pt2_backend, list_classes_from_module
from marserve.handlers.labels import load_label_mapping
from marserve.handlers.scores import map_class_to_label
from marserve.handlers.text_cleaning import CLEANUP_REGEX

__all__ = [
    "CLEANUP_REGEX",
    "PredictionException",
    "check_valid_pt2_backend",
    "list_classes_from_module",
    "load_label_mapping",
    "map_class_to_label",
]
