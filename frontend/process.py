"""One worker process, whatever it does: spawn it, read its output, kill it, wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from marserve.frontend.logs import WorkerLog

_TAIL_LINES = 20
_ON_THE_WAY_BYTES = 2 << 20
MAX_LINE_BYTES = 1 << 20


class ChildProcess(Protocol):
    """A worker process as its supervisor sees it, however it was started.

    Attributes:
        pid: Its process id.
        sock: Our end of the socket to it.
        tail: Its last lines on stderr, for describing why it died.
    """

    pid: int
    sock: socket.socket
    tail: deque[str]

    def kill(self) -> None:
        """Ends it at once, stopped or not."""

    async def exited(self) -> None:
        """Waits until it has ended."""

    async def wait(self, timeout_s: float) -> int:
        """Returns the exit status; kills the process if it has not ended after ``timeout_s``."""
        ...


class Output:
    """Copies what a process prints to the log, line by line.

    Args:
        name: Of the worker.
        streams: Its stdout and stderr.
        log: Receives the lines.
        transports: Below the streams, to be closed when the process has ended.
    """

    def __init__(
        self,
        name: str,
        streams: Sequence[asyncio.StreamReader | None],
        log: WorkerLog,
        transports: Sequence[asyncio.BaseTransport] = (),
    ) -> None:
        self._transports = transports
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._readers = [
            asyncio.create_task(self._copy(stream, name, kind, log))
            for stream, kind in zip(streams, ("stdout", "stderr"), strict=True)
            if stream is not None
        ]

    async def end(self) -> None:
        """Waits for the last lines of a process that has ended.

        A grandchild may hold the pipes open as long as it likes: its output is not awaited.
        """
        _, late = await asyncio.wait(self._readers, timeout=0.5)
        for reader in late:
            reader.cancel()
        for transport in self._transports:
            transport.close()  # uvloop leaves a pipe open whose end it has read

    async def _copy(
        self, stream: asyncio.StreamReader, name: str, kind: str, log: WorkerLog
    ) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                continue  # longer than the limit: that piece is dropped, the rest goes on
            if not line:
                return
            text = line.decode(errors="replace").rstrip("\n")
            if kind == "stderr":
                self.tail.append(text)
            log.line(name, kind, text)


class SpawnedProcess:
    """A child process of ours, connected by a socket pair; use ``spawn``."""

    def __init__(
        self, process: asyncio.subprocess.Process, sock: socket.socket, output: Output
    ) -> None:
        self._process = process
        self._output = output
        self.sock = sock
        self.pid = process.pid
        self.tail = output.tail

    @classmethod
    async def spawn(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        name: str,
        log: WorkerLog,
        kind: int = socket.SOCK_STREAM,
    ) -> SpawnedProcess:
        """Starts ``argv`` with the number of its socket's descriptor as one more argument.

        Raises:
            OSError: If it cannot be started.
        """
        ours, theirs = socket_pair(kind)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                str(theirs.fileno()),
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_LINE_BYTES,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()  # its copy is the child's: when the child dies, ours sees the end
        return cls(process, ours, Output(name, (process.stdout, process.stderr), log))

    def kill(self) -> None:
        """Ends it at once, stopped or not."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                self._process.kill()

    async def exited(self) -> None:
        """Waits until it has ended."""
        await self._process.wait()

    async def wait(self, timeout_s: float) -> int:
        """Returns the exit status; kills the process if it has not ended after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        await self._output.end()
        return self._process.returncode or 0


def socket_pair(kind: int = socket.SOCK_STREAM) -> tuple[socket.socket, socket.socket]:
    """Returns two connected sockets between which much can be on its way, as far as allowed.

    With the usual room of 200 KiB, a body of 4 MiB would wake both sides twenty times.
    """
    pair = socket.socketpair(socket.AF_UNIX, kind)
    for each in pair:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ON_THE_WAY_BYTES)
    return pair


def is_stopped(pid: int) -> bool:
    """Tells whether a process was stopped by a signal, and not continued yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def exit_cause(returncode: int) -> str:
    """Returns in words how a process ended, for an error message."""
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
