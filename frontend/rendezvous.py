"""A lone quick request is awaited in place: being woken costs more than the answer itself."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence

from marserve.worker.wire import Buffer

WAIT_S = 60e-6
QUICK_S = 30e-6  # a handler that takes longer is not worth standing still for
CALM = 8  # lone requests in a row after which there seems to be one client alone
REST = -16  # so many more are sent the usual way after one that was awaited in vain


class Rendezvous:
    """Decides when to stand still for an answer, and does so.

    With one client that asks again as soon as it is answered, the way of a no-op request is four
    processes' turns; each time one falls asleep and is woken takes longer than its work. The event
    loop stands still at most ``WAIT_S``, only while requests come one at a time, and rests after
    each wait in vain, so nobody else waits for it noticeably.
    """

    __slots__ = ("_streak",)

    def __init__(self) -> None:
        self._streak = 0

    def is_worth_it(self, alone: bool, handler_s: float) -> bool:
        """Tells whether to wait for a request's answer.

        Args:
            alone: Whether nothing else is in flight or queued.
            handler_s: What the batch before it took in the handler, in seconds.
        """
        self._streak = self._streak + 1 if alone else min(self._streak, 0)
        return self._streak > CALM and handler_s < QUICK_S

    def wait(self, sock: socket.socket, buffer: memoryview) -> int:
        """Reads what comes within the moment; returns the number of bytes, 0 if none came.

        The end of the stream and errors are left to the event loop, which meets them again.
        """
        end = time.perf_counter() + WAIT_S
        while time.perf_counter() < end:
            try:
                return sock.recv_into(buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                os.sched_yield()
            except OSError:
                break
        self._streak = REST
        return 0


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
