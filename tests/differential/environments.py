"""Environments of other servers, made once and kept beside the one of the tests."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_INSTALL_S = 300


def cached(name: str, *requirements: str, flags: tuple[str, ...] = ()) -> Path:
    """Returns a virtual environment with the requirements.

    Raises:
        OSError, subprocess.SubprocessError: If it cannot be made.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marserve"
    key = hashlib.sha256(f"{requirements} {flags} {sys.version}".encode()).hexdigest()[:12]
    target = cache / f"{name}-{key}"
    ready = target / "ready"
    if not ready.exists():
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", target], check=True, timeout=_INSTALL_S)
        pip = [str(target / "bin/python"), "-m", "pip", "install", "-q", *flags, *requirements]
        subprocess.run(pip, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
        ready.touch()
    return target


def reason(what: str, error: Exception) -> str:
    """Says why something cannot be installed."""
    output = getattr(error, "stderr", "") or str(error)
    return f"{what} cannot be installed: {output[-300:]}"
