"""Lets handlers written for TorchServe import its package ``ts``, in a worker process alone."""

from __future__ import annotations

import sys
from pathlib import Path


def activate() -> None:
    """Makes ``ts`` importable in this process; an installed TorchServe is hidden by it."""
    folder = str(Path(__file__).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
