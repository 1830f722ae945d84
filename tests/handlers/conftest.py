"""Tiny models, built once a run, and handlers loaded from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tiny_models import build, trace

TinyModel = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Returns the directory of a tiny model, its traced form beside it: (kind, task) -> Path."""
    built: dict[tuple[str, str], Path] = {}

    def get(kind: str, task: str) -> Path:
        if (kind, task) not in built:
            directory = tmp_path_factory.mktemp(f"{kind}-{task}")
            trace(build(kind, task, directory), task)
            built[kind, task] = directory
        return built[kind, task]

    return get
