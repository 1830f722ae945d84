"""Where what can be made again is kept for the next start."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(kind: str) -> Path:
    """The user's directory for one kind of files; it may not be there yet.

    ``XDG_CACHE_HOME`` is heeded, unless it is relative (XDG Base Directory Specification 0.8).

    Raises:
        RuntimeError: If the user has no home.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = "~/.cache"
    return Path(base).expanduser() / "marserve" / kind
