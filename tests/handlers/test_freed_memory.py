"""What is freed is kept: told by the page faults of a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import ctypes, resource, sys
from marserve.handlers.freed_memory import keep_freed_memory
told = keep_freed_memory()
libc, size = ctypes.CDLL(None), 16 << 20
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def use():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
use()
print(told, *(use() for _ in range(5)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_a_second_buffer_takes_no_new_pages() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    told, *faults = done.stdout.split()

    if told != "True":
        pytest.skip("this C library cannot be told")
    assert all(int(count) < 100 for count in faults), faults  # of 4096 pages
