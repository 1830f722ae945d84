"""The text of /metrics as values, to be compared; and the pieces of an answer as they are sent."""

from __future__ import annotations

import re
import socket
from typing import Any

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*?)(?:\{(.*)\})? (\S+)$")


def families(text: str) -> dict[str, tuple[str, str]]:
    """Name of each metric to its help text and its type."""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    return {
        name: (helps[name], kind) for name, kind in re.findall(r"^# TYPE (\S+) (.*)$", text, re.M)
    }


def labels(text: str) -> dict[str, tuple[str, ...]]:
    """Name of each sample to the names of its labels, in order."""
    found = (_SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
    return {s[1]: tuple(re.findall(r'(\w+)="', s[2] or "")) for s in found if s}


def values(text: str, of: str) -> dict[str, float]:
    """Samples of one model, as their line shows them, to their values."""
    lines = (line for line in text.splitlines() if f'"{of}"' in line)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def pieces(port: int, path: str, body: str, kind: str = "text/plain") -> list[bytes]:
    """The chunks of an answer, as the server cut them."""
    data = body.encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(head.encode() + data)
        received = connection.makefile("rb")
        while received.readline() not in (b"\r\n", b""):
            pass
        return list(_chunks(received))


def _chunks(received: Any) -> Any:
    while size := int(received.readline(), 16):
        yield received.read(size)
        received.readline()
