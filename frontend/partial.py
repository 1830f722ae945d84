"""Files of the model store that are not whole yet: hidden ones, until they get their name."""

from __future__ import annotations

import logging
import secrets
import time
from pathlib import Path

_log = logging.getLogger(__name__)

_PART = ".marserve-part-"
_PART_AGE_S = 24 * 3600.0


def new_part(store: Path) -> Path:
    """Returns a path for a file that is about to be written."""
    return store / f"{_PART}{secrets.token_hex(8)}"


def sweep_parts(store: Path) -> None:
    """Removes what downloads of a killed server left in the store a day ago or longer."""
    if not store.is_dir():
        return
    for part in store.glob(f"{_PART}*"):
        try:
            if time.time() - part.lstat().st_mtime > _PART_AGE_S:
                part.unlink()
        except OSError as error:
            _log.warning("%s cannot be removed: %s", part.name, error)
