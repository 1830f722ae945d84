"""Python files looked at without running them: do they parse, and is there something to call."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

_ENTRY = "handle"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def entry_point_problem(path: Path, entry: str = "") -> str | None:
    """Says why a handler file cannot be a handler, None if it can.

    A handler has the function that was named, else a function ``handle``, else exactly one class
    with a method ``handle`` of its own or, as far as can be seen, inherited.

    Args:
        path: The Python file.
        entry: What stands after the colon of the handler, if anything.
    """
    tree = _parse(path)
    if isinstance(tree, str):
        return tree
    statements = list(_top_level(tree.body))
    names = {name for statement in statements for name in _bound(statement)}
    wanted = entry or _ENTRY
    if wanted in names or "*" in names:
        return None
    if entry:
        return f"expected a function named {entry}, as --handler says; found {_listed(names)}"
    return _class_problem([node for node in statements if isinstance(node, ast.ClassDef)])


def function_problem(path: Path, name: str) -> str | None:
    """Says why a Python file has no such function, None if it has, as far as can be seen."""
    tree = _parse(path)
    if isinstance(tree, str):
        return tree
    names = {bound for statement in _top_level(tree.body) for bound in _bound(statement)}
    if name in names or "*" in names:
        return None
    return f"expected a function {name}(data, context); found {_listed(names)}"


def model_file_problem(path: Path) -> str | None:
    """Says why a model file cannot be one, None if it can: it must define exactly one class."""
    tree = _parse(path)
    if isinstance(tree, str):
        return tree
    classes = [node.name for node in _top_level(tree.body) if isinstance(node, ast.ClassDef)]
    if len(classes) == 1:
        return None
    return f"expected exactly one class, the model; found {_listed(set(classes))}"


def _parse(path: Path) -> ast.Module | str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the file's style, which is none of our business
            return ast.parse(path.read_bytes(), path.name)
    except SyntaxError as error:
        return f"line {error.lineno}: cannot be parsed as Python: {error.msg}"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return f"cannot be parsed as Python: {error}"


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements that run on import, those inside ``if``, ``try`` and ``with`` too."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            if not isinstance(statement, Function | ast.ClassDef):
                yield from _top_level(getattr(statement, part, []))
        for handler in getattr(statement, "handlers", []):
            yield from _top_level(handler.body)


def _bound(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name for alias in names)
        case ast.Assign(targets=targets):
            for node in (node for target in targets for node in ast.walk(target)):
                if isinstance(node, ast.Name):
                    yield node.id
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _class_problem(classes: list[ast.ClassDef]) -> str | None:
    """Only what certainly fails is a problem: a base class from elsewhere may bring ``handle``."""
    own = {node.name for node in classes if _has_method(node)}
    for node in classes:  # definitions precede their use as a base
        if own & {base.id for base in node.bases if isinstance(base, ast.Name)}:
            own.add(node.name)
    if len(own) > 1:
        return (
            f"expected exactly one class with a method {_ENTRY}, or a function {_ENTRY}; "
            f"found {_listed(own)}"
        )
    if own or any(node.bases for node in classes):
        return None
    return (
        f"expected a function {_ENTRY}(data, context), or a class with a method {_ENTRY} or a base "
        f"class that has it; found {_listed({node.name for node in classes})}"
    )


def _has_method(node: ast.ClassDef) -> bool:
    return any(_ENTRY in _bound(statement) for statement in node.body)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
