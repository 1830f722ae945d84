"""A private temporary directory that does not outlive its server, even one that is killed.

The directory holds a file that its server keeps locked. The kernel drops the lock with the process,
so the next server can tell what is left over from what is in use, whatever the process ids say.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

logger = logging.getLogger(__name__)

PREFIX = "marserve-"
_LOCK = ".in-use"
_NAME = re.compile(PREFIX + r"\d+-[a-z0-9_]{8}")  # process id, then what mkdtemp adds
_GRACE_S = 60.0  # between the making of a directory and that of its lock


class ScratchDirectory:
    """Makes the directory, and removes those that killed servers of this user left behind.

    Args:
        parent: Where, such as the system's temporary directory.
    """

    def __init__(self, parent: Path) -> None:
        sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Removes the directory with all that is in it."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def sweep(parent: Path) -> None:
    """Removes directories of this user that no living server holds."""
    for entry in parent.glob(f"{PREFIX}*-*"):
        if not _NAME.fullmatch(entry.name):
            continue  # not of ours: somebody else's directory may begin with the same word
        try:
            status = entry.lstat()
            own = status.st_uid == os.geteuid() and entry.is_dir() and not entry.is_symlink()
            if own and _left_over(entry, status.st_mtime):
                logger.info("removing what an earlier server left behind: %s", entry.name)
                shutil.rmtree(entry, ignore_errors=True)
        except OSError:
            continue  # another server was quicker


def _left_over(directory: Path, changed_at: float) -> bool:
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - changed_at > _GRACE_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
