"""The gRPC servers: which services stand at which address, and how they listen and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from marserve.archiver.errors import ConfigError
from marserve.frontend.grpc.calls import Calls
from marserve.frontend.grpc.directory import Directory, Servicer
from marserve.frontend.grpc.inference import InferenceService
from marserve.frontend.grpc.management import ManagementService
from marserve.frontend.sites import tls_context

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.config import ServerConfig

_log = logging.getLogger(__name__)

_LAST_ANSWERS_S = 5.0
_KEEPALIVE_MS = 60_000  # a client that is silent for so long is asked whether it is there
_KEEPALIVE_ANSWER_MS = 20_000
_LEAST_PING_MS = 5_000  # clients may ask that often themselves; grpc's own limit is five minutes

Option = tuple[str, int]


def servicers(services: Services) -> dict[str, list[Servicer]]:
    """Returns the services of every address, ``inference`` and ``management``."""
    strict = services.config.compat == "strict"
    return {
        "inference": [InferenceService(services, Calls(services, strict))],
        "management": [ManagementService(services, Calls(services))],
    }


class GrpcServers:
    """The two servers.

    Args:
        services: What they work with.
    """

    def __init__(self, services: Services) -> None:
        self._config = services.config
        self._servicers = servicers(services)
        calls = Calls(services)
        self._directories = {
            kind: Directory(listed, kind, services.auth, calls)
            for kind, listed in self._servicers.items()
        }
        self._servers: list[grpc.aio.Server] = []

    async def bind(self) -> None:
        """Listens.

        Raises:
            ConfigError: If that is not possible, naming address and key.
        """
        for kind, directory in self._directories.items():
            server = grpc.aio.server(options=_options(self._config, kind))
            server.add_generic_rpc_handlers((directory,))
            self._listen(server, kind)
            await server.start()
            self._servers.append(server)

    def drain(self) -> None:
        """The server stops: what was asked is answered, and long streams end after that."""
        for listed in self._servicers.values():
            for servicer in listed:
                servicer.drain()

    async def close(self) -> None:
        """Stops listening, lets the last answers out and closes all connections."""
        self.drain()
        await asyncio.gather(*(server.stop(_LAST_ANSWERS_S) for server in self._servers))

    def _listen(self, server: grpc.aio.Server, kind: str) -> None:
        address = self._config.grpc_address(kind)
        where = str(address).removeprefix(f"{address.scheme}://")
        try:
            if self._config.enable_grpc_ssl:
                server.add_secure_port(where, _credentials(self._config))
            else:
                server.add_insecure_port(where)
        except RuntimeError:
            key = f"grpc_{kind}_port"
            place = f"{self._config.sources[key]}: {key}"
            hint = f"give another {key} or grpc_{kind}_address, or set enable_grpc=false"
            reason = f"{address} is in use by another program, or no address of this machine"
            raise ConfigError(place, reason, hint) from None


def _options(config: ServerConfig, kind: str) -> Sequence[Option]:
    options = [
        ("grpc.so_reuseport", 0),  # else two servers would share a port, and its calls
        ("grpc.max_receive_message_length", min(config.max_request_size, 2**31 - 1)),
        ("grpc.max_send_message_length", -1),  # max_response_size is looked after elsewhere
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_ANSWER_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_MS),
    ]
    for name in ("max_connection_age_ms", "max_connection_age_grace_ms"):
        value = getattr(config, f"grpc_{kind}_{name}")
        if value is not None:
            options.append((f"grpc.{name}", min(value, 2**31 - 1)))
    return options


def _credentials(config: ServerConfig) -> grpc.ServerCredentials:
    tls_context(config)  # says what is wrong with the files; grpc would only say that something is
    certificate, key = config.certificate_file, config.private_key_file
    assert certificate is not None  # noqa: S101  # config_checks has looked
    assert key is not None  # noqa: S101
    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
