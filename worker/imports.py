"""What an archive's Python files will import later, found without running them.

Handlers often import their libraries only when they are initialized. A template imports the large
ones ahead, so that all workers forked from it share one copy. Reading the files decides nothing
but what is imported early: whatever fails here fails again, and is reported, in the worker.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from marserve.archiver.manifest import MANIFEST_PATH, TRANSFORMER_HANDLER

# Libraries that are slow to import, large, and safe to import before a fork.
_SHAREABLE = frozenset(
    {"captum", "numpy", "PIL", "safetensors", "scipy", "tokenizers", "torch", "transformers"}
)
_MAX_FILE_BYTES = 1 << 20
_MAX_FILES = 100
_TELLING = frozenset({"config.json", "tokenizer_config.json", MANIFEST_PATH})


def preload_mentioned(model_dir: str, handler: str) -> None:
    """Imports the large libraries that an unpacked archive and its handler's name mention."""
    if TRANSFORMER_HANDLER in handler:
        _preload("transformers", [])
    files = [p for p in sorted(Path(model_dir).iterdir()) if _tells(p.name) and p.is_file()]
    _preload_all((p.name, p.read_bytes()) for p in files if p.stat().st_size <= _MAX_FILE_BYTES)


def preload_zip(path: str) -> None:
    """Imports the large libraries that a packed archive mentions.

    The archive has not been checked: members are only read, and never more than a small part.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if _tells(m.filename)][:_MAX_FILES]
            _preload_all((m.filename, archive.open(m).read(_MAX_FILE_BYTES)) for m in members)
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return  # unpacking meets the same and reports it


def _tells(name: str) -> bool:
    """Whether a file of the archive's root says what will be imported."""
    return name in _TELLING or ("/" not in name and name.endswith(".py"))


def _preload_all(files: Iterable[tuple[str, bytes]]) -> None:
    contents = {name: data.decode(errors="replace") for name, data in files}
    for name, text in contents.items():
        if name.endswith(".py"):
            for module, names in mentioned(text):
                _preload(module, names)
    if TRANSFORMER_HANDLER in contents.get(MANIFEST_PATH, ""):
        _preload("transformers", [])
    if "transformers" in sys.modules:
        _preload("transformers", _named(contents, "config.json", "architectures"))
        _preload("transformers", _named(contents, "tokenizer_config.json", "tokenizer_class"))


def _named(contents: Mapping[str, str], file: str, key: str) -> list[str]:
    """The class names that a file of a Hugging Face directory gives."""
    try:
        named = json.loads(contents[file])[key]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    names = named if isinstance(named, list) else [named]
    return [name for name in names if isinstance(name, str)]


def mentioned(source: str) -> Iterator[tuple[str, list[str]]]:
    """Yields modules of large libraries, and the names taken from them, wherever they are imported.

    Args:
        source: Text of a Python file; one with a syntax error mentions nothing.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _shareable(alias.name):
                    yield alias.name, []
        elif isinstance(node, ast.ImportFrom) and not node.level and _shareable(node.module or ""):
            yield node.module or "", [alias.name for alias in node.names]


def _shareable(module: str) -> bool:
    return module.partition(".")[0] in _SHAREABLE


def _preload(module: str, names: list[str]) -> None:
    try:
        found = importlib.import_module(module)
        for name in names:
            getattr(found, name, None)  # some libraries import a part when it is first named
    except Exception:  # noqa: S110  # the worker will meet the same error and report it
        pass
