"""The processes of one worker that share a model: they live, and they end, together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from marserve.frontend.process import ChildProcess
from marserve.frontend.ranks import hold_port
from marserve.frontend.scratch import ScratchDirectory

_LAST_WAIT_S = 2.0


class Meeting:
    """What the ranks of one worker need to find each other: a directory and a port of their own.

    Raises:
        OSError: If there is no port, or no place for the directory.
    """

    def __init__(self) -> None:
        self._port = hold_port()
        try:
            self._scratch = ScratchDirectory(Path(tempfile.gettempdir()))
        except BaseException:
            self._port.close()
            raise

    @property
    def port(self) -> int:
        """Nobody else's, as long as this lasts."""
        return int(self._port.getsockname()[1])

    @property
    def directory(self) -> Path:
        """Private to these ranks."""
        return self._scratch.path

    def close(self) -> None:
        """Gives both up."""
        self._port.close()
        self._scratch.close()


class RankGroup:
    """Several processes as one: when one ends, the others are of no use.

    Args:
        members: In the order of their ranks.
        meeting: Closed when all have ended.
    """

    def __init__(self, members: Sequence[ChildProcess], meeting: Meeting) -> None:
        self._members = members
        self._meeting = meeting
        self._first: ChildProcess | None = None
        self.pid = members[0].pid
        self.sock: socket.socket = members[0].sock
        self.tail: deque[str] = deque(maxlen=members[0].tail.maxlen)
        self._ends = [asyncio.create_task(self._watch(member)) for member in members]

    def kill(self) -> None:
        """Ends them all at once, stopped or not, and what they have started."""
        for member, end in zip(self._members, self._ends, strict=True):
            if not end.done():
                _kill_group(member.pid)
                member.kill()

    async def exited(self) -> None:
        """Waits until one has ended, and ends the others."""
        await asyncio.wait(self._ends, return_when=asyncio.FIRST_COMPLETED)
        self.kill()

    async def wait(self, timeout_s: float) -> int:
        """Returns the exit status of the first that ended; kills what is left after a while."""
        await asyncio.wait(self._ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        first = self._first or self._members[0]
        status = await first.wait(0.0)
        if not status:  # in good order: the others follow
            await asyncio.wait(self._ends, timeout=timeout_s)
        self.kill()
        for member in self._members:
            await member.wait(_LAST_WAIT_S)
        self.tail.extend(first.tail)
        self._meeting.close()
        return status

    async def _watch(self, member: ChildProcess) -> None:
        await member.exited()
        self._first = self._first or member
        _kill_group(member.pid)


def _kill_group(pid: int) -> None:
    """What the handler of a rank has started is in its process group, also when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
