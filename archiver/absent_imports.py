"""Packages that an archive's code imports and this environment does not have, by name."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from marserve.archiver.findings import Finding

_SHIM = "ts"


def absent_imports(
    tree: ast.Module, file: str, own: Collection[str], *, requirements: str | None, shim: Path
) -> list[Finding]:
    """Returns what a file imports that is not there.

    Args:
        tree: The file.
        file: Its name.
        own: Modules and packages of the archive itself.
        requirements: The archive's list of packages, if it has one: they may come from there.
        shim: The folder that stands for TorchServe's package ``ts`` in a worker.
    """
    found: dict[str, Finding] = {}
    for name, line, certain in _imports(tree):
        top = name.partition(".")[0]
        if top in own or top in sys.stdlib_module_names or top == "marserve":
            continue
        if top == _SHIM:
            if not _has_module(shim, name):
                text = f"{name} is imported, and there is no such module here"
                found.setdefault(name, Finding("error", text, _SHIM_ADVICE, file, line))
        elif importlib.util.find_spec(top) is None:
            found.setdefault(top, _absent(top, file, line, certain, requirements))
    return list(found.values())


_SHIM_ADVICE = "docs/migration.md lists what can be imported from ts"


def _absent(top: str, file: str, line: int, certain: bool, requirements: str | None) -> Finding:
    if requirements is not None:
        text = f"{top} is imported and not installed here: it has to come from {requirements}"
        remedy = "useVenv: true in model-config.yaml, or install_py_dep_per_model=true"
        return Finding("note", text, remedy, file, line)
    if not certain:
        return Finding(
            "note",
            f"{top} is not installed here; code that runs later imports it",
            f"install the package that has {top}, if that code is used",
            file,
            line,
        )
    remedy = f"install the package that has {top}, or name it in a requirements.txt of the archive"
    return Finding("error", f"{top} is imported and not installed here", remedy, file, line)


def _has_module(shim: Path, name: str) -> bool:
    path = shim.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def _imports(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Yields module, line, and whether the import runs whenever the file is imported."""
    certain = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in certain
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno, id(node) in certain
