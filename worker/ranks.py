"""The process of a worker that consists of several: it ends with the one that started it."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import NoReturn

STORE = "MARSERVE_RANK_STORE"
"""Names the file by which the ranks of a worker find each other; only ranks have it."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def is_rank() -> bool:
    """Whether this process is one of a group."""
    return STORE in os.environ


def begin_rank() -> None:
    """Makes sure that nothing of this process outlives its server.

    A rank may wait for another one in a call that looks at no socket, so the kernel ends it with
    its parent. It leads a process group, so that what the handler starts ends with it.
    """
    import ctypes  # of no use to the server, which reads the name above

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setpgid(0, 0)


def end_rank(status: int) -> NoReturn:
    """Ends this process; an orderly end of the interpreter would wait for ranks that are gone."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
