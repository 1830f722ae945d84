"""Lines that one thread writes, so that neither a slow disk nor a full pipe stops the server."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections import deque
from collections.abc import Callable

MAX_LINES = 50_000
"""Lines kept while the writing is stuck; what comes then is dropped and counted."""


class LineWriter:
    """Collects lines from any thread; a thread of its own writes them a moment later.

    A line costs the caller one append. The thread sleeps while there is nothing to write.

    Args:
        write: Writes text that ends with a newline; called from the thread alone.
        name: Of the thread.
        interval_s: How long lines gather before they are written.
    """

    def __init__(self, write: Callable[[str], None], name: str, interval_s: float) -> None:
        self.name = name
        self._write = write
        self._interval_s = interval_s
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._waiting: deque[threading.Event] = deque()
        self._armed = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def append(self, line: str) -> None:
        """Takes a line with its newline; never waits."""
        if len(self._lines) >= MAX_LINES:
            self._dropped += 1
            return
        self._lines.append(line)
        if not self._armed:
            self._armed = True
            self._wake.set()

    def flush(self, timeout_s: float) -> bool:
        """Waits until what was appended so far is written; tells whether it was, in that time."""
        written = threading.Event()
        self._waiting.append(written)
        self._wake.set()
        return written.wait(timeout_s)

    def close(self, timeout_s: float = 2.0) -> bool:
        """Writes what is left, and waits for that.

        Args:
            timeout_s: How long at most; a pipe that nobody reads may never take the rest.

        Returns:
            Whether everything was written.
        """
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._closing.wait(self._interval_s)
            # In this order: a line that comes after the pass below wakes the thread again.
            self._wake.clear()
            self._armed = False
            self._flush()
        self._flush()

    def _flush(self) -> None:
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        # Only this thread takes lines away, so the count can only be too small.
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append(f"... {dropped} lines were dropped here: they came faster than written\n")
        if lines:
            self._write("".join(lines))
        for written in waiting:
            written.set()


def write_console(text: str, fd: int = 1) -> None:
    """Writes to a file descriptor, all of it; a reader that has gone away is no error."""
    data = memoryview(text.encode(errors="replace"))
    try:
        while data:
            data = data[_write_some(fd, data) :]
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO, errno.EBADF, errno.ENOSPC):
            raise


def _write_some(fd: int, data: memoryview) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:  # whoever shares the terminal may have made it non-blocking
        select.select([], [fd], [])
        return 0
