"""Fixtures that give tests a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import Running, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """A server of this test's own, not yet started: pack models into it first."""
    yield from running(tmp_path)
