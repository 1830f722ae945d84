"""The optimizer's side of a trial: starts its process, asks it, ends it."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from marserve.archiver.errors import MarserveError


class TrialError(MarserveError):
    """A mode that cannot be loaded or run here; its text says why."""


class TrialProcess:
    """A mode in a process of its own.

    Args:
        job: What the process is to load, as JSON.
        threads: Compute threads.
        limit_s: Longest time that loading, or any answer, may take.

    Attributes:
        load_s: Seconds that loading and warming up took.

    Raises:
        TrialError: If it cannot be loaded.
    """

    load_s: float

    def __init__(self, job: Path, threads: int, limit_s: float) -> None:
        self._limit_s = limit_s
        self._buffer = b""
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        self._log = job.with_suffix(".log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "marserve.handlers.optimize.trial", str(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                bufsize=0,
            )
        try:
            self.load_s = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, **arguments: Any) -> Any:
        """Returns what a method of ``trial.Trial`` returns.

        Raises:
            TrialError: If it failed, ended, or took too long.
        """
        line = json.dumps({"do": do, **arguments}) + "\n"
        try:
            self._stdin.write(line.encode())
        except OSError as error:
            raise self._ended() from error
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    @property
    def _stdout(self) -> Any:
        return self._process.stdout

    def _answer(self) -> Any:
        answer = json.loads(self._line())
        if "error" in answer:
            raise TrialError(answer["error"])
        return answer["value"]

    def _line(self) -> bytes:
        ends = time.monotonic() + self._limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(ends - time.monotonic(), 0)):
                    raise TrialError(f"took longer than {self._limit_s:g} s (--limit)")
                chunk: bytes = os.read(self._stdout.fileno(), 1 << 16)
                if not chunk:
                    raise self._ended()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _ended(self) -> TrialError:
        status = self._process.wait()
        reason = f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
        said = self._log.read_text(errors="replace").strip().splitlines()
        return TrialError(f"its process {reason}" + (f": {said[-1][:300]}" if said else ""))
