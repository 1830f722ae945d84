from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

HANDLER = """\
class Handler:
    def initialize(self, context): ...
    def handle(self, data, context): return [1] * len(data)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of a small model; the working directory is an empty one."""
    root = tmp_path / "model"
    (root / "data/deep/__pycache__").mkdir(parents=True)
    (root / "data/.git").mkdir()
    files = {
        "handler.py": HANDLER,
        "entry.py": "def entry(data, context): return data\n",
        "net.py": "class Net: ...\n",
        "weights.pt": "w" * 100_000,
        "requirements.txt": "six\n",
        "model-config.yaml": "minWorkers: 1\nmaxWorkers: 2\n",
        "index_to_name.json": '{"0": "no", "1": "yes"}\n',
        "data/a.txt": "a",
        "data/.hidden": "kept",
        "data/deep/b.txt": "b",
        "data/deep/__pycache__/b.pyc": "pruned",
        "data/.git/config": "pruned",
    }
    for name, text in files.items():
        (root / name).write_text(text)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return root


def _run(command: str) -> Run:
    def run(*args: object, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).parent / command, *map(str, args)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **environ},
        )

    return run


@pytest.fixture(scope="session")
def archive_model() -> Run:
    """Runs our command."""
    return _run("archive-model")


@pytest.fixture(scope="session")
def torch_model_archiver() -> Run:
    """Runs the real tool."""
    return _run("torch-model-archiver")
