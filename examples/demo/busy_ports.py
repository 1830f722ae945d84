"""Print which of the given TCP ports are in use on the loopback address, or nothing."""

from __future__ import annotations

import socket
import sys


def is_busy(port: int) -> bool:
    """Return whether a server cannot listen on a port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


if __name__ == "__main__":
    print(", ".join(port for port in sys.argv[1:] if is_busy(int(port))))
