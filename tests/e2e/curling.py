"""The server of ``running``, asked by the real curl."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.running import Running


@dataclass
class Response:
    """What curl got: the last of the answers, if there were several. Header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Curling:
    """A running server."""

    server: Running

    @property
    def root(self) -> Path:
        return self.server.root

    def curl(self, path: str, *args: str, surface: str = "inference") -> Response:
        return curl(f"http://127.0.0.1:{self.server.ports[surface]}{path}", *args)

    def manage(self, method: str, path: str, *args: str) -> Response:
        return self.curl(path, "-X", method, *args, surface="management")


def curl(url: str, *args: str) -> Response:
    """Runs ``curl -i -g -s ARGS URL``."""
    argv = ["curl", "-i", "-g", "-s", "--max-time", "60", *args, url]
    done = subprocess.run(argv, capture_output=True, timeout=90, check=False)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 1"):
        head, _, body = body.partition(b"\r\n\r\n")
    assert head, f"curl got no answer: {done}"
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines if ": " in line)
    return Response(int(first.split()[1]), {name.lower(): value for name, value in pairs}, body)
