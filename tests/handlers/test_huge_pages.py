"""Memory on huge pages: the process's own alone, and unchanged; told by processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")

OWN = """
import mmap
from pathlib import Path
from marserve.handlers.huge_pages import use_huge_pages
block = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.madvise(mmap.MADV_NOHUGEPAGE)
block[:] = bytes(range(256)) * (1 << 18)
block.madvise(mmap.MADV_HUGEPAGE)
def huge_kb():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))
before = huge_kb()
made = use_huge_pages()
assert block[:] == bytes(range(256)) * (1 << 18)
print(made, huge_kb() - before)
"""

FORKED = """
import mmap, os, sys
from pathlib import Path
from marserve.handlers.huge_pages import use_huge_pages
block = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block[:] = bytes(64 << 20)
sparse = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 64 << 20, 1 << 16):
    sparse[at] = 1
def private_kb():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private"))
if os.fork() == 0:
    before = private_kb()
    use_huge_pages()
    print(private_kb() - before, flush=True)
    os._exit(0)
os.wait()
before = private_kb()
use_huge_pages()
print(private_kb() - before)
"""


def answers(code: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_memory_moves_onto_huge_pages_and_says_what_it_was() -> None:
    made, more_kb = answers(OWN)

    if made < 30:  # of the 31 or 32 whole blocks of 64 MiB
        pytest.skip("this system makes none, or has no whole blocks left")
    assert more_kb >= 30 * 2048


def test_neither_what_a_fork_shares_nor_what_is_hardly_used_takes_more_memory() -> None:
    forked_kb, sparse_kb = answers(FORKED)

    assert forked_kb < 16 << 10  # of 64 MiB that are the parent's too
    assert sparse_kb < 16 << 10  # of 64 MiB of which 4 are in use
