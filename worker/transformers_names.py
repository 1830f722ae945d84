"""What transformers offers, kept from one start to the next.

Importing transformers reads the text of all its model files (34 MB in two thousand files) to learn
which names it offers: a third of a second of computing, and much more where the files are not in
memory. The answer is kept for as long as none of these files has changed. Where it cannot be kept
or read, transformers does what it always does.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

import msgspec

from marserve.archiver.user_cache import user_cache

_SCANNER = "transformers.utils.import_utils"
_SCAN = "define_import_structure"
_MANY = 100  # files; of fewer, as of one model alone, the text is read as quickly as what is kept

# By the packages that they need: the names in each module.
Names = dict[frozenset[str], dict[str, set[str]]]
_NAMES = msgspec.msgpack.Decoder(list[tuple[frozenset[str], dict[str, set[str]]]])


def keep_names() -> None:
    """Has transformers' names kept, if it is imported in this process later."""
    if _Finder not in sys.meta_path and _SCANNER not in sys.modules:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _SCANNER:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if hasattr(module, _SCAN):
            setattr(module, _SCAN, partial(names_of, getattr(module, _SCAN), self.path))


def names_of(
    scan: Callable[..., Names], scanner: str, package: str | Path, prefix: str | None = None
) -> Names:
    """The names that a package's modules offer.

    Args:
        scan: Finds them in the text of the files.
        scanner: The file in which it is written.
        package: A directory, or a file in it.
        prefix: Of the modules' names.
    """
    directory = package if os.path.isdir(package) else os.path.dirname(package)
    try:
        state, path = _state(scanner, directory), _path(directory, prefix)
    except (OSError, RuntimeError):  # the latter: this user has no home
        return scan(package, prefix)
    if not state:
        return scan(package, prefix)
    try:
        return _read(path, state)
    except (OSError, ValueError):
        names = scan(package, prefix)
    with suppress(OSError, TypeError, ValueError, AttributeError):
        _write(path, state, names)  # or not: names of another form, a directory of somebody else
    return names


def _state(scanner: str, directory: str | Path) -> bytes:
    """Changes whenever one of the files does, and from one version to the next; empty for few."""
    stamps = sorted(_stamps(directory))
    if len(stamps) < _MANY:
        return b""
    found = hashlib.sha256(repr(stamps).encode())
    for path in (scanner, os.path.join(directory, os.pardir, "__init__.py")):
        with open(path, "rb") as file:
            found.update(file.read())
    return found.digest()


def _path(directory: str | Path, prefix: str | None) -> Path:
    key = repr((os.path.realpath(directory), prefix))
    return user_cache("transformers") / hashlib.sha256(key.encode()).hexdigest()[:32]


def _stamps(directory: str | Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _stamps(entry.path)


def _read(path: Path, state: bytes) -> Names:
    data = path.read_bytes()
    if not data.startswith(state):
        raise ValueError("another state of the files")
    return dict(_NAMES.decode(data[len(state) :]))


def _write(path: Path, state: bytes, names: Names) -> None:
    data = state + msgspec.msgpack.encode(list(names.items()))
    _NAMES.decode(data[len(state) :])
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        new = Path(directory) / path.name
        new.write_bytes(data)
        new.replace(path)
