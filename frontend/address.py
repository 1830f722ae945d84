"""Where the server listens: ``http://host:port``, ``https://host:port`` or ``unix:/path``."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_SOCKET_PATH = 107  # bytes; the kernel's sun_path holds 108 with its closing zero


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address.

    Args:
        scheme: ``http``, ``https`` or ``unix``; ``grpc`` or ``grpcs`` for gRPC.
        host: Name or IP without brackets; empty for ``unix``.
        port: 1 to 65535, or 0 for a free one; 0 for ``unix``.
        path: The socket file; empty but for ``unix``.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine can connect."""
        if self.scheme == "unix" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str, http_port: int, https_port: int) -> Address:
    """Reads an address.

    Args:
        text: Such as ``http://127.0.0.1:8080``, ``https://[::1]`` or ``unix:/tmp/serve.sock``.
        http_port: The port where a ``http`` address names none.
        https_port: The port where a ``https`` address names none.

    Raises:
        ValueError: If the text is no address.
    """
    if text.startswith("unix:"):
        return _unix(text.removeprefix("unix:"))
    parts = urlsplit(text)
    port = parts.port  # raises ValueError itself outside of 0 to 65535
    extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme not in ("http", "https") or not parts.hostname or extra:
        raise ValueError(text)
    if port is None:
        port = https_port if parts.scheme == "https" else http_port
    return Address(parts.scheme, parts.hostname, port)


def _unix(path: str) -> Address:
    path = path.removeprefix("//")
    if not path or "\0" in path or len(path.encode()) > MAX_SOCKET_PATH:
        raise ValueError(path)
    return Address("unix", path=path)
