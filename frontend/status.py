"""Asks a running server how it is: from its process, its settings and its management API."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from marserve.archiver.errors import ConfigError, MarserveError
from marserve.frontend.address import Address
from marserve.frontend.auth import KEY_FILE
from marserve.frontend.config import ServerConfig, load_config
from marserve.frontend.flags import parse_flags
from marserve.frontend.pidfile import SERVER_MODULE

_TIMEOUT_S = 5.0


def server_config(process: psutil.Process) -> ServerConfig:
    """Returns the settings of a server, read again from what it was started with.

    Raises:
        ConfigError: If the settings have become invalid since.
        psutil.Error: If the process has gone, or belongs to another user.
    """
    argv = process.cmdline()
    flags = parse_flags(argv[argv.index(SERVER_MODULE) + 1 :])
    return load_config(flags, process.environ(), Path(process.cwd()))


def describe_server(process: psutil.Process) -> Iterator[str]:
    """Yields lines for a person: process, addresses, models with their workers."""
    up_s = time.time() - process.create_time()
    yield f"marserve is running (pid {process.pid}, up {up_s:.0f} s)"
    try:
        config = server_config(process)
    except (psutil.Error, ConfigError) as error:
        yield f"  its settings cannot be read: {error}"
        return
    yield f"  inference   {config.inference_address}"
    yield f"  management  {config.management_address}"
    if config.enable_metrics_api:
        yield f"  metrics     {config.metrics_address}"
    try:
        yield from _describe_models(config, Path(process.cwd()))
    except (OSError, http.client.HTTPException, ValueError, MarserveError) as error:
        yield f"  models      the management API does not answer: {error}"


def _describe_models(config: ServerConfig, directory: Path) -> Iterator[str]:
    key = None if config.disable_token_authorization else _management_key(config, directory)
    token = ""
    names: list[str] = []
    while True:
        page = _get(config.management_address, f"/models?limit=100&next_page_token={token}", key)
        names += [model["modelName"] for model in page["models"]]
        following = page.get("nextPageToken", "")
        if not page["models"] or not following:
            break
        token = following
    if not names:
        yield "  models      none"
    for name in names:
        for model in _get(config.management_address, f"/models/{name}/all", key):
            workers = model.get("workers", [])
            ready = sum(worker["status"] == "READY" for worker in workers)
            version = f"{model['modelName']} {model['modelVersion']}"
            yield f"  model       {version}: {ready} of {model['minWorkers']} workers ready"


def _management_key(config: ServerConfig, directory: Path) -> str:
    fixed = config.fixed_keys.get("management")
    if fixed is not None:
        return fixed
    content = json.loads((directory / KEY_FILE).read_text())
    return str(content["management"]["key"])


def _get(address: Address, path: str, key: str | None) -> Any:
    connection = _connect(address)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            text = body.decode(errors="replace")[:200]
            raise MarserveError(f"{path} answered {response.status}: {text}")
        return json.loads(body)
    finally:
        connection.close()


def _connect(address: Address) -> http.client.HTTPConnection:
    if address.scheme == "unix":
        return UnixConnection(address.path)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104
    if address.scheme == "https":
        # The address and the key come from this machine's files; the certificate names other hosts.
        context = ssl._create_unverified_context()  # noqa: S323
        return http.client.HTTPSConnection(host, address.port, timeout=_TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, address.port, timeout=_TIMEOUT_S)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket.

    Args:
        path: The socket file.
    """

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)
