"""A lone quick request is awaited in place: being woken costs more than the answer itself."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence

from marserve.worker.wire import Buffer

WAIT_S = 60e-6
QUICK_S = 100e-6  # a handler that takes longer is not worth standing still for
CALM = 8  # lone requests in a row after which there seems to be one client alone
REST = -16  # so many more are sent the usual way after one that was awaited in vain
_LONGEST_REST = -4096  # each rest is twice as long as the one before, until waits are good again
WORTH = 24  # waits that ended well make up for one in vain
_S_PER_BYTE = 1.2e-9  # there and back: a body takes its time
_LARGE_BYTES = 128 << 10


class Rendezvous:
    """Decides when to stand still for an answer, and does so.

    With one client that asks again as soon as it is answered, the way of a no-op request is four
    processes' turns; each time one falls asleep and is woken takes longer than its work. The event
    loop stands still for ``WAIT_S``, or little more for a large body, only while requests come one
    at a time, and rests after a wait in vain that had not many good ones before it, so nobody else
    waits for it noticeably.

    Attributes:
        rested: Set unless the event loop is kept from sleeping now.
    """

    __slots__ = ("_good", "_handler_s", "_rest", "_streak", "_until", "rested")

    def __init__(self) -> None:
        self._streak = 0
        self._rest = REST
        self._until = self._handler_s = 0.0
        self.rested = asyncio.Event()
        self.rested.set()
        self._good = 0  # waits that ended well

    def is_worth_it(self, alone: bool, handler_s: float) -> bool:
        """Tells whether to wait for a request's answer.

        Args:
            alone: Whether nothing else is in flight or queued.
            handler_s: What the batch before it took in the handler, in seconds.
        """
        self._streak = self._streak + 1 if alone else min(self._streak, 0)
        self._until, self._handler_s = 0.0, handler_s
        return self._streak > CALM and handler_s < QUICK_S

    def wait(self, sock: socket.socket, buffer: memoryview, size: int = 0) -> int:
        """Reads what comes within the moment; returns the number of bytes, 0 if none came.

        The end of the stream and errors are left to the event loop, which meets them again.

        Args:
            sock: Of the worker.
            buffer: To read into.
            size: Of what was sent, bytes.
        """
        more_s = 2 * self._handler_s + min(size, _LARGE_BYTES) * _S_PER_BYTE
        end = time.perf_counter() + WAIT_S + more_s
        while time.perf_counter() < end:
            try:
                count = sock.recv_into(buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                break
            else:
                self._good = min(self._good + 1, 4 * WORTH)
                if self._good == WORTH:
                    self._rest = REST
                return count
        self._vain()
        return 0

    def linger(self) -> None:
        """Keeps the event loop from sleeping for a moment: the next request may come as soon."""
        self._until = time.perf_counter() + WAIT_S
        if self.rested.is_set():
            self.rested.clear()
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        if time.perf_counter() < self._until:
            asyncio.get_running_loop().call_soon(self._look)
            return
        self.rested.set()
        if self._until:
            self._vain()

    def _vain(self) -> None:
        self._good -= WORTH
        if self._good < 0:
            self._good, self._streak = 0, self._rest
            self._rest = max(2 * self._rest, _LONGEST_REST)


def write_now(sock: socket.socket, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Writes what the socket takes at once; returns what is left to be written."""
    try:
        sent = sock.sendmsg(buffers, (), socket.MSG_DONTWAIT)
    except OSError:
        sent = 0
    left: list[Buffer] = []
    for buffer in buffers:
        if sent < len(buffer):
            left.append(memoryview(buffer)[sent:] if sent else buffer)
        sent = max(0, sent - len(buffer))
    return left
