"""Binds the HTTP applications to their addresses."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from marserve.archiver.errors import ConfigError
from marserve.frontend.address import Address
from marserve.frontend.api.admission import Gate, most_connections
from marserve.frontend.api.app import FRONT, RUNNER_OPTIONS
from marserve.frontend.api.hot_server import HotServer

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig

_BACKLOG = 1024  # connections that wait to be accepted; the kernel's own limit may be lower
_LAST_ANSWERS_S = 5.0
_REASONS = {
    errno.EADDRINUSE: "is in use by another program",
    errno.EACCES: "is not allowed for this user",
    errno.EADDRNOTAVAIL: "is no address of this machine",
}


class Sites:
    """The addresses on which the server listens.

    Args:
        config: Names them.
        apps: By surface, ``inference`` and so on; one object under two names is bound once.
    """

    def __init__(self, config: ServerConfig, apps: dict[str, web.Application]) -> None:
        self._config = config
        self._apps = apps
        self._runners: list[web.AppRunner] = []
        self._listeners: list[asyncio.Server] = []
        self._hot: list[HotServer] = []
        self._sockets: list[Path] = []
        self._most = most_connections(config.max_connections)

    async def bind(self) -> None:
        """Listens on every address.

        Raises:
            ConfigError: If that is not possible, naming address and key.
        """
        bound: set[int] = set()
        for surface, app in self._apps.items():
            if id(app) not in bound:
                bound.add(id(app))
                await self._bind(f"{surface}_address", app)

    async def close(self) -> None:
        """Stops listening, lets the last answers out and closes all connections."""
        for listener in self._listeners:
            listener.close()
        await asyncio.gather(*(hot.close(_LAST_ANSWERS_S) for hot in self._hot))
        for runner in self._runners:
            await runner.cleanup()
        self.remove_sockets()

    def remove_sockets(self) -> None:
        """Removes the files of Unix sockets."""
        for path in self._sockets:
            with suppress(OSError):
                path.unlink()

    async def _bind(self, key: str, app: web.Application) -> None:
        address: Address = getattr(self._config, key)
        options: dict[str, Any] = {"shutdown_timeout": _LAST_ANSWERS_S, **RUNNER_OPTIONS}
        runner = web.AppRunner(app, **options)
        self._runners.append(runner)
        await runner.setup()
        try:
            await self._listen(runner, app, address, short_way=key == "inference_address")
        except OSError as error:
            reason = _REASONS.get(error.errno or 0, f"cannot be used: {error.strerror or error}")
            where = f"{self._config.sources[key]}: {key}"
            raise ConfigError(where, f"{address} {reason}", f"give another {key}") from None

    async def _listen(
        self, runner: web.AppRunner, app: web.Application, address: Address, short_way: bool
    ) -> None:
        """Predictions take the short way; aiohttp gets the connections that ask for more."""
        assert runner.server is not None  # noqa: S101  # the runner is set up
        front, server = app[FRONT], runner.server
        connect: Callable[[], asyncio.BaseProtocol] = front.patient(server)
        hot: HotServer | None = None
        if short_way and address.scheme == "http":
            connect = hot = HotServer(front, front.patient(server))
            self._hot.append(hot)

        def count() -> int:
            return len(server.connections) + (0 if hot is None else len(hot))

        connect = Gate(connect, count, self._most, front)
        loop = asyncio.get_running_loop()
        if address.scheme == "unix":
            path = Path(address.path)
            _clear(path)
            self._sockets.append(path)
            listener = await loop.create_unix_server(connect, path, backlog=_BACKLOG)
        else:
            context = tls_context(self._config) if address.scheme == "https" else None
            listener = await loop.create_server(
                connect, address.host, address.port, ssl=context, backlog=_BACKLOG
            )
        self._listeners.append(listener)


def _clear(path: Path) -> None:
    """Removes a socket that nobody listens on any more; a live one is in use."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise OSError(errno.EEXIST, "there is a file of that name")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, "in use")


def tls_context(config: ServerConfig) -> ssl.SSLContext:
    """Returns what the certificate and the key of the settings make.

    Raises:
        ConfigError: If they cannot be read, or do not fit each other.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key = config.certificate_file, config.private_key_file
    assert certificate is not None  # noqa: S101  # config_checks has looked
    try:
        # A key that needs a password must fail here, not ask on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        where = f"{config.sources['certificate_file']}: certificate_file, private_key_file"
        hint = "a PEM certificate and its unencrypted PEM key"
        raise ConfigError(where, f"{certificate} and {key} do not fit: {error}", hint) from None
    return context
