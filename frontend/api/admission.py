"""How many connections an address has at most: one more is told to come again, and closed."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from marserve.frontend.api import http
from marserve.frontend.api.heads import HeadWriter
from marserve.frontend.errors import ServiceUnavailable

if TYPE_CHECKING:
    from marserve.frontend.api.app import Front

_log = logging.getLogger(__name__)

_OTHER_FILES = 512  # descriptors for workers, logs, and the connections of other addresses
_LINGER_S = 1.0  # for the client to read the refusal, which a reset would take from it
_MAX_LINGERING = 256
_SILENCE_S = 60.0


def most_connections(wanted: int) -> int:
    """Returns how many connections the process can have, ``wanted`` at most.

    Raises the limit of open files as far as that is allowed: with none left, no worker could be
    started any more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if resource.RLIM_INFINITY != soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            _log.warning(
                "max_connections: %d of %d can be had: the process may open %d files",
                max(1, soft - _OTHER_FILES),
                wanted,
                soft,
            )
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _OTHER_FILES))


class Gate:
    """Makes the connections of one address, or refusals; pass it to ``loop.create_server``.

    Args:
        connect: Makes a connection.
        count: Returns how many there are.
        most: How many there may be.
        front: Of the address.
    """

    def __init__(
        self,
        connect: Callable[[], asyncio.BaseProtocol],
        count: Callable[[], int],
        most: int,
        front: Front,
    ) -> None:
        self._connect = connect
        self._count = count
        self._most = most
        self._front = front
        self._heads = HeadWriter(front.constant)
        self._told_at = float("-inf")
        self.lingering = 0

    def __call__(self) -> asyncio.BaseProtocol:
        """Returns the protocol of a new connection."""
        if self._count() < self._most:
            return self._connect()
        return _Refusal(self)

    def refusal(self) -> bytes:
        """Returns the answer to one connection too many, and counts it."""
        now = time.monotonic()
        if now - self._told_at >= _SILENCE_S:
            self._told_at = now
            _log.warning("%d connections are open: more are refused (max_connections)", self._most)
        self._front.services.telemetry.response(ServiceUnavailable.status)
        error = ServiceUnavailable(
            f"The server has {self._most} open connections, as many as it may"
            " (max_connections in config.properties). Try again later.",
            retry_after_s=1,
        )
        head, body = self._heads.whole(error.chunk(), http.new_request_id(), keep_alive=False)
        return head + bytes(body)


class _Refusal(asyncio.Protocol):
    """Answers before anything is read, and waits a moment for the client to have read that."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop for a new connection."""
        out = cast("asyncio.Transport", transport)  # uvloop's do not inherit from asyncio's
        gate = self._gate
        gate.lingering += 1
        if gate.lingering > _MAX_LINGERING:
            out.abort()
            return
        out.write(gate.refusal())
        if out.can_write_eof():
            out.write_eof()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LINGER_S, out.abort)
        else:
            out.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the connection is closed."""
        self._gate.lingering -= 1
        if self._timer is not None:
            self._timer.cancel()
