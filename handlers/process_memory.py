"""How much memory processes use."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import psutil


def get_cpu_usage(pid: str | int) -> int:
    """Returns the resident memory of a process in bytes, 0 if there is none of that id."""
    try:
        resident: int = psutil.Process(int(pid)).memory_info().rss
    except (psutil.Error, ValueError):
        return 0
    return resident


def check_process_mem_usage(stdin: Iterable[str]) -> None:
    """Prints ``pid:bytes`` for each process.

    Args:
        stdin: Lines of process ids, several joined by commas.
    """
    for line in stdin:
        for pid in line.strip().split(","):
            if pid:
                sys.stdout.write(f"{pid}:{get_cpu_usage(pid)}\n")
