"""What the house rules ask of every file, and of the documents that describe the files."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from marserve.archiver.handler_options import HandlerOptions
from marserve.archiver.model_config import ModelConfig
from marserve.frontend.config_keys import KEYS

ROOT = Path(__file__).parent.parent
FOLDERS = ("archiver", "frontend", "handlers", "worker")
MODULES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.stem.endswith(("_pb2", "_pb2_grpc"))  # generated
]
MOST_LINES_A_FILE = 350
MOST_LINES_A_FUNCTION = 60


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_is_long() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in MODULES}

    assert {} == {file: length for file, length in lengths.items() if length > MOST_LINES_A_FILE}


def test_no_function_is_long() -> None:
    long = {
        f"{name(path)}: {node.name}": node.end_lineno - node.lineno + 1
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= MOST_LINES_A_FUNCTION
    }

    assert {} == long


def test_the_architecture_names_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    files = text.partition("## Files")[2]

    assert [] == [
        name(path)
        for path in MODULES
        if path.name != "__init__.py"
        and not name(path).startswith("worker/compat/")
        and f"\n{name(path)} " not in files
    ]


def test_the_architecture_names_no_module_that_is_gone() -> None:
    files = (ROOT / "ARCHITECTURE.md").read_text().partition("## Files")[2]
    named = [line.split()[0] for line in files.splitlines() if line.startswith(FOLDERS)]

    assert [] == [file for file in named if not (ROOT / file).exists()]


@pytest.mark.parametrize("schema", [ModelConfig, HandlerOptions])
def test_the_schema_of_model_config_is_documented(schema: type[msgspec.Struct]) -> None:
    text = (ROOT / "docs" / "model-config.md").read_text()
    keys = [field.encode_name for field in msgspec.structs.fields(schema)]

    assert [] == [
        key for key in keys if key not in ("raw", "warnings", "extra") and f"`{key}`" not in text
    ]


def test_the_sample_configuration_has_every_key() -> None:
    lines = (ROOT / "config.properties").read_text().splitlines()
    named = {line.lstrip("# ").partition("=")[0] for line in lines if "=" in line}

    assert set() == set(KEYS) - named
