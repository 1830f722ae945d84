"""The gRPC servers: which services stand at which address, and how they listen and stop."""

from __future__ import annotations

import asyncio
import errno
import ssl
from typing import TYPE_CHECKING

from marserve.archiver.errors import ConfigError
from marserve.frontend.api.admission import most_connections
from marserve.frontend.grpc import (
    health_pb2,
    inference_pb2,
    management_pb2,
    open_inference_pb2,
)
from marserve.frontend.grpc.calls import Calls
from marserve.frontend.grpc.directory import Directory, Servicer
from marserve.frontend.grpc.health import SERVICE as HEALTH
from marserve.frontend.grpc.health import HealthService
from marserve.frontend.grpc.inference import InferenceService
from marserve.frontend.grpc.management import ManagementService
from marserve.frontend.grpc.open.administration import administration
from marserve.frontend.grpc.open.inference import OpenInferenceService
from marserve.frontend.grpc.reflection import ReflectionService
from marserve.frontend.http2.listener import Limits, Listener
from marserve.frontend.sites import tls_context

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.config import ServerConfig

_LAST_ANSWERS_S = 5.0
_BACKLOG = 1024
_IN_USE = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES})


def servicers(services: Services) -> dict[str, list[Servicer]]:
    """Returns the services of every address, ``inference`` and ``management``."""
    strict, calls = services.config.compat == "strict", Calls(services)
    ledger = calls.ledger
    inference: list[Servicer] = [
        InferenceService(services, Calls(services, strict, ledger)),
        OpenInferenceService(services, calls),
        *administration(services, calls),
    ]
    management: list[Servicer] = [ManagementService(services, calls)]
    return {
        "inference": inference + _about(services, calls, inference, "inference"),
        "management": management + _about(services, calls, management, "management"),
    }


_FILES = {
    "inference": (inference_pb2.DESCRIPTOR, open_inference_pb2.DESCRIPTOR),
    "management": (management_pb2.DESCRIPTOR,),
}


def _about(services: Services, calls: Calls, listed: list[Servicer], kind: str) -> list[Servicer]:
    """The services that tell of those of an address."""
    names = frozenset(path.split("/")[1] for servicer in listed for path in servicer.methods)
    health = HealthService(services, calls, names | {HEALTH})
    files = (*_FILES[kind], health_pb2.DESCRIPTOR)
    return [health, ReflectionService(calls, files, names | {HEALTH}, kind)]


class GrpcServers:
    """The two servers.

    Args:
        services: What they work with.
    """

    def __init__(self, services: Services) -> None:
        self._config = services.config
        self._servicers = servicers(services)
        calls = Calls(services)
        self._listeners = {
            kind: Listener(
                Directory(listed, kind, services.auth, calls), _limits(services.config, kind)
            )
            for kind, listed in self._servicers.items()
        }
        self._servers: list[asyncio.Server] = []

    async def bind(self) -> None:
        """Listens.

        Raises:
            ConfigError: If that is not possible, naming address and key.
        """
        for kind, listener in self._listeners.items():
            self._servers.append(await self._listen(listener, kind))

    def drain(self) -> None:
        """The server stops: what was asked is answered, and long streams end after that."""
        for listed in self._servicers.values():
            for servicer in listed:
                servicer.drain()

    async def close(self) -> None:
        """Stops listening, lets the last answers out and closes all connections."""
        self.drain()
        for server in self._servers:
            server.close()
        listeners = self._listeners.values()
        await asyncio.gather(*(listener.close(_LAST_ANSWERS_S) for listener in listeners))

    async def _listen(self, listener: Listener, kind: str) -> asyncio.Server:
        address = self._config.grpc_address(kind)
        context = _tls(self._config) if self._config.enable_grpc_ssl else None
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_server(
                listener, address.host, address.port, ssl=context, backlog=_BACKLOG
            )
        except OSError as error:
            key = f"grpc_{kind}_port"
            place = f"{self._config.sources[key]}: {key}"
            hint = f"give another {key} or grpc_{kind}_address, or set enable_grpc=false"
            reason = f"{address} cannot be used: {error.strerror or error}"
            if error.errno in _IN_USE:
                reason = f"{address} is in use by another program, or no address of this machine"
            raise ConfigError(place, reason, hint) from None


def _limits(config: ServerConfig, kind: str) -> Limits:
    age_ms = getattr(config, f"grpc_{kind}_max_connection_age_ms")
    grace_ms = getattr(config, f"grpc_{kind}_max_connection_age_grace_ms")
    return Limits(
        connections=most_connections(config.max_connections),
        age_s=None if age_ms is None else age_ms / 1e3,
        grace_s=None if grace_ms is None else grace_ms / 1e3,
    )


def _tls(config: ServerConfig) -> ssl.SSLContext:
    context = tls_context(config)
    context.set_alpn_protocols(["h2"])
    return context
