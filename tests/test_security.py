"""What no line of the code may do, looked for in the code itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = [
    path
    for folder in ("archiver", "frontend", "handlers", "worker")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
UNPICKLES = {"load", "loads", "Unpickler", "Pickler", "dump", "dumps"}
NEVER_IMPORTED = {"marshal", "shelve", "dill", "cloudpickle", "joblib", "telnetlib"}


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """All calls of a module, with the dotted name of what is called."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def found(wrong: Iterator[tuple[Path, ast.Call, str]]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{call.lineno}: {name}" for path, call, name in wrong]


def all_calls() -> Iterator[tuple[Path, ast.Call, str]]:
    return ((path, call, name) for path in MODULES for call, name in calls(path))


def keyword(call: ast.Call, name: str) -> object:
    for each in call.keywords:
        if each.arg == name and isinstance(each.value, ast.Constant):
            return each.value.value
    return None


def test_nothing_is_unpickled() -> None:
    wrong = (
        (path, call, name)
        for path, call, name in all_calls()
        if name.startswith("pickle.") and name.removeprefix("pickle.") in UNPICKLES
    )
    assert found(wrong) == []


def test_weights_are_loaded_as_weights_only() -> None:
    loads = [each for each in all_calls() if each[2] == "torch.load"]

    assert loads
    assert found(e for e in iter(loads) if keyword(e[1], "weights_only") is not True) == []


def test_arrays_are_loaded_without_objects() -> None:
    wrong = (each for each in all_calls() if each[2] in ("np.load", "numpy.load"))
    assert found(wrong) == []


def test_yaml_makes_plain_values_alone() -> None:
    unsafe = re.compile(r"yaml\.(load|load_all|full_load\w*|unsafe_load\w*|dump|\w*Loader)")
    wrong = (each for each in all_calls() if unsafe.fullmatch(each[2]))
    assert found(wrong) == []


def test_no_text_is_run() -> None:
    wrong = (
        (path, call, name)
        for path, call, name in all_calls()
        if name in ("eval", "exec", "compile", "os.system", "os.popen", "input")
        or keyword(call, "shell")
        or name.endswith("create_subprocess_shell")
    )
    assert found(wrong) == []


def test_nothing_is_extracted_by_the_standard_library() -> None:
    wrong = (e for e in all_calls() if e[2].endswith((".extractall", "unpack_archive", ".extract")))
    assert found(wrong) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports(path: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])

    assert not names & NEVER_IMPORTED
    if path.is_relative_to(ROOT / "frontend") or path.is_relative_to(ROOT / "worker"):
        assert "pickle" not in names
