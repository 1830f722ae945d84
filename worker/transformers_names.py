"""What transformers offers, kept from one start to the next.

To learn which names it offers, transformers reads the text of its model files, some 1,700 with
34 MB, twice while it is imported: half a second of computing, and more where the files are not in
memory. The answer is kept for as long as the files have the same sizes and times. Where it cannot
be kept or read, and for calls of another form, transformers does what it always does.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

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
    """Finds one module as the other finders do, and changes how it is loaded."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _SCANNER:
            return None
        finds = [getattr(each, "find_spec", None) for each in sys.meta_path if each is not _Finder]
        specs = (find(name, path, target) for find in finds if find is not None)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Gives the scan of the model files a memory, before anybody else has the function."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if hasattr(module, _SCAN):
            rules = self.get_data(self.path)
            setattr(module, _SCAN, remembering(getattr(module, _SCAN), rules))


def remembering(scan: Callable[..., Names], rules: bytes) -> Callable[..., Names]:
    """Returns a function like ``scan`` that keeps what it finds.

    Args:
        scan: Called with a package's directory, or a file in it, and sometimes with a prefix of the
            modules' names, tells which names the modules offer.
        rules: What it goes by: its source.
    """
    began_ns = time.time_ns()
    sought: set[str] = set()  # a second scan in this process may give what others have changed

    @wraps(scan)
    def remembered(*args: Any, **kwargs: Any) -> Names:
        kept = None
        with suppress(OSError, RuntimeError):  # the latter: this user has no home
            kept = _Kept.of(rules, args, kwargs)
        if kept is None:
            return scan(*args, **kwargs)
        with suppress(OSError, ValueError):
            return kept.read()
        names = scan(*args, **kwargs)
        if kept.newest_ns < began_ns and kept.key not in sought:
            with suppress(OSError, TypeError, ValueError, AttributeError):
                kept.write(names)  # or not: names of another form, or nowhere to write
        sought.add(kept.key)
        return names

    for name in ("cache_clear", "cache_info"):
        if hasattr(scan, name):
            setattr(remembered, name, getattr(scan, name))
    return remembered


class _Kept:
    """The file with what one call found.

    Args:
        key: Of the call.
        state: Of all files that it reads.
        newest_ns: When the last of them was changed; what was loaded before that does not suit it.
    """

    def __init__(self, key: str, state: bytes, newest_ns: int) -> None:
        self.key = key
        self.newest_ns = newest_ns
        self._state = state
        self._path = user_cache("transformers") / hashlib.sha256(key.encode()).hexdigest()[:32]

    @classmethod
    def of(cls, rules: bytes, args: Sequence[Any], kwargs: dict[str, Any]) -> _Kept | None:
        """Returns that of a call; None if the call is of another form, or reads little.

        Raises:
            OSError: If a file cannot be looked at.
            RuntimeError: If the user has no home.
        """
        if len(args) != 1 or kwargs.keys() - {"prefix"} or not isinstance(args[0], (str, Path)):
            return None
        directory = os.path.realpath(args[0])
        if not os.path.isdir(directory):
            directory = os.path.dirname(directory)
        stamps = sorted(_stamps(directory, ""))
        if len(stamps) < _MANY:
            return None
        version = Path(directory, os.pardir, "__init__.py")
        state = hashlib.sha256(repr(stamps).encode() + version.read_bytes() + rules).digest()
        newest_ns = max(version.stat().st_ctime_ns, *(changed for *_, changed in stamps))
        return cls(repr((directory, kwargs)), state, newest_ns)

    def read(self) -> Names:
        """Returns the names.

        Raises:
            OSError: If there is no such file.
            ValueError: If it is of another state, or broken.
        """
        data = self._path.read_bytes()
        if not data.startswith(self._state):
            raise ValueError("another state of the files")
        return dict(_NAMES.decode(data[len(self._state) :]))

    def write(self, names: Names) -> None:
        """Writes the file, whole or not at all, and into no other user's directory."""
        import tempfile  # only a first start needs it

        data = msgspec.msgpack.encode(list(names.items()))
        _NAMES.decode(data)
        place = self._path.parent
        nearest = next(path for path in (place, *place.parents) if path.exists())
        if nearest.stat().st_uid != os.geteuid():
            return  # such as root with the home of a user, who could not write here any more
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=place) as directory:
            new = Path(directory) / self._path.name
            new.write_bytes(self._state + data)
            new.replace(self._path)


def _stamps(directory: str, below: str) -> Iterator[tuple[str, int, int, int]]:
    """Yields path, size in bytes, and times of the last change, in ns, of all Python files."""
    with os.scandir(directory) as entries:
        for entry in entries:
            path = f"{below}/{entry.name}"
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield path, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _stamps(entry.path, path)
