"""The examples are scripts beside the package: their folder is on the path, and this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(Path(__file__).parent)]


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of the examples."""
    return EXAMPLES


@pytest.fixture(scope="session")
def shell_environment() -> dict[str, str]:
    """The environment of a shell in which .venv is activated."""
    scripts = str(Path(sys.executable).parent)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TS_")}
    return {**kept, "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"}
