"""Texts for clients: of what no encoding has, and of where the server keeps its files, nothing."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from functools import lru_cache
from pathlib import Path


def plain(value: object) -> str:
    """Returns a value as text that can be encoded: lone surrogates become escapes."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def without_paths(text: str, model_dir: str) -> str:
    """Returns a message without the directories of this machine; names of files stay.

    Args:
        text: Such as that of a ``FileNotFoundError``.
        model_dir: Directory of the model; names below it stay whole.
    """
    if "/" not in text:
        return text
    return _pattern(model_dir).sub("", text)


@lru_cache(maxsize=8)
def _pattern(model_dir: str) -> re.Pattern[str]:
    inside = _alternatives([model_dir])
    package = str(Path(__file__).resolve().parents[1])
    known = [tempfile.gettempdir(), os.path.expanduser("~"), os.getcwd(), package]
    elsewhere = _alternatives([*known, sys.prefix, sys.base_prefix, *sys.path])
    return re.compile(rf"(?<![\w/])(?:{inside}/|{elsewhere}(?:/[^/\s'\"]+)*/)")


def _alternatives(folders: list[str]) -> str:
    found = {each for f in folders if f for each in (os.path.abspath(f), os.path.realpath(f))}
    longest_first = sorted(found - {"/"}, key=len, reverse=True)
    return f"(?:{'|'.join(map(re.escape, longest_first))})"
