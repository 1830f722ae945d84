"""All connections of one address that take the short way: made, watched and closed together."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from marserve.frontend.api.exchange import STALL_S
from marserve.frontend.api.heads import HeadWriter
from marserve.frontend.api.hot import HotConnection

if TYPE_CHECKING:
    from marserve.frontend.api.app import Front

_IDLE_S = 75.0
_SCRATCH_BYTES = 256 << 10
_SWEEP_S = 5.0


class HotServer:
    """Makes a connection for each client; pass it to ``loop.create_server``.

    Args:
        front: Dispatches the requests of this address.
        fallback: Makes the protocol that takes over other requests.
    """

    def __init__(self, front: Front, fallback: Callable[[], asyncio.Protocol]) -> None:
        self.front = front
        self.fallback = fallback
        self.heads = HeadWriter(front.constant)
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))  # of all: each empties it at once
        self._connections: set[HotConnection] = set()
        self._none_left = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None

    def __call__(self) -> HotConnection:
        """Returns the protocol of a new connection, which counts from now on."""
        connection = HotConnection(self)
        self.add(connection)
        return connection

    def __len__(self) -> int:
        """Returns how many connections take the short way now."""
        return len(self._connections)

    def add(self, connection: HotConnection) -> None:
        """Takes note of a connection."""
        self._connections.add(connection)
        self._none_left.clear()
        if self._sweeper is None:
            self._sweep_later()

    def remove(self, connection: HotConnection) -> None:
        """Forgets a connection that is closed or handed over."""
        self._connections.discard(connection)
        if not self._connections:
            self._none_left.set()

    async def close(self, timeout_s: float) -> None:
        """Closes idle connections at once and busy ones after their answer, or after a while."""
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._none_left.wait()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _sweep_later(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now, receive_s = time.monotonic(), self.front.services.config.receive_timeout
        for connection in list(self._connections):
            connection.check(now, _IDLE_S, STALL_S, receive_s)
        self._sweeper = None
        if self._connections:
            self._sweep_later()
