"""All HTTP/2 connections of one address: made, watched and closed together."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass

from marserve.frontend.http2.connection import Connection
from marserve.frontend.http2.errors import Code
from marserve.frontend.http2.inbox import Application

_SWEEP_S = 2.0
_GREETING_S = 20.0  # for a client to say that it speaks HTTP/2
_SILENCE_S = 60.0  # after which a client is asked whether it is there
_PONG_S = 20.0
_STALL_S = 60.0  # without progress of a frame that has begun, or of one that is to be sent


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an address.

    Args:
        streams: Open on a connection at most.
        connections: Open at most.
        age_s: After which a connection takes no more streams; None for no limit.
        grace_s: After that, for its streams to end; None for no limit.
    """

    streams: int = 1000
    connections: int = 10_000
    age_s: float | None = None
    grace_s: float | None = None


class Listener:
    """Makes a connection for each client; pass it to ``loop.create_server``.

    Args:
        application: What they are for.
        limits: Of the address.
    """

    def __init__(self, application: Application, limits: Limits) -> None:
        self.application = application
        self.most_streams = limits.streams
        self._limits = limits
        self._connections: dict[Connection, _Watch] = {}
        self._none_left = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None

    def __call__(self) -> Connection:
        """Returns the protocol of a new connection."""
        connection = Connection(self)
        self._connections[connection] = _Watch()
        self._none_left.clear()
        connection.unwelcome = len(self._connections) > self._limits.connections
        if self._sweeper is None:
            self._sweep_later()
        return connection

    def __len__(self) -> int:
        """Returns how many connections there are."""
        return len(self._connections)

    def remove(self, connection: Connection) -> None:
        """Forgets a connection that is closed."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._none_left.set()

    async def close(self, timeout_s: float) -> None:
        """Closes all connections after their answers, or after a while."""
        for connection in list(self._connections):
            connection.leave()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._none_left.wait()
        for connection in list(self._connections):
            connection.end(Code.NO_ERROR, "the server is stopped")
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _sweep_later(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection, watch in list(self._connections.items()):
            watch.look(connection, now, self._limits)
        self._sweeper = None
        if self._connections:
            self._sweep_later()


class _Watch:
    """What was seen of a connection, to tell whether anything moves."""

    __slots__ = ("_asked_at", "_moved_at", "_taken")

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self._taken = 0
        self._moved_at = time.monotonic()

    def look(self, connection: Connection, now: float, limits: Limits) -> None:
        """Gives a connection up on which nothing has moved for too long."""
        taken, quiet_s = connection.out.taken, now - connection.inbox.active_at
        if taken != self._taken or not connection.out.unsent:
            self._taken, self._moved_at = taken, now
        if now - self._moved_at >= _STALL_S:
            connection.abort()  # it does not read its answers
        elif not connection.inbox.greeted and now - connection.opened_at >= _GREETING_S:
            connection.end(Code.PROTOCOL_ERROR, "no HTTP/2 was spoken")
        elif connection.inbox.half_read and quiet_s >= _STALL_S:
            connection.end(Code.PROTOCOL_ERROR, "a frame does not end")
        else:
            self._ask(connection, now, quiet_s)
            self._age(connection, now - connection.opened_at, limits)
            for stream in list(connection.inbox.streams.values()):
                if stream.receiver is not None:
                    stream.receiver.stalled(now)

    def _ask(self, connection: Connection, now: float, quiet_s: float) -> None:
        if quiet_s < _SILENCE_S or not connection.inbox.greeted:
            self._asked_at = None
        elif self._asked_at is None:
            self._asked_at = now
            connection.ping()
        elif now - self._asked_at >= _PONG_S:
            connection.abort()

    def _age(self, connection: Connection, age_s: float, limits: Limits) -> None:
        if limits.age_s is not None and age_s >= limits.age_s:
            connection.leave()
            if limits.grace_s is not None and age_s >= limits.age_s + limits.grace_s:
                connection.end(Code.NO_ERROR, "the connection is too old")
