"""The HTTP applications on free ports, for tests; started by the fixture ``start``."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from marserve.frontend.api.app import Services
from marserve.frontend.line_writer import LineWriter

HANDLER = """
import json

def handle(data, context):
    if data is None:
        return None
    out = []
    for i, row in enumerate(data):
        headers = context.get_all_request_header(i)
        if headers.get("fail"):
            raise ValueError("asked to")
        if headers.get("typed"):
            context.set_response_content_type(i, "text/x-test")
        shown = {}
        for name, value in row.items():
            shown[name] = bytes(value).decode() if isinstance(value, bytearray) else value
        wanted = {k: headers.get(k) for k in ("explain", "url_path", "X-Case")}
        size = int(headers.get("size", 0))
        out.append("x" * size if size else json.dumps({"row": shown, "headers": wanted}))
    return out
"""


class Server:
    """The applications on free ports."""

    def __init__(
        self,
        services: Services,
        ports: dict[str, int],
        log: LineWriter,
        lines: list[str],
        logged: threading.Event,
    ) -> None:
        self.services = services
        self.ports = ports
        self.log = log
        self.lines = lines
        self.logged = logged
        self.session = aiohttp.ClientSession()

    def url(self, path: str, surface: str = "inference") -> URL:
        return URL(f"http://127.0.0.1:{self.ports[surface]}{path}", encoded=True)

    async def call(
        self, path: str, method: str = "GET", surface: str = "inference", **more: Any
    ) -> tuple[int, aiohttp.ClientResponse, bytes]:
        url = self.url(path, surface)
        async with self.session.request(method, url, **more) as response:
            return response.status, response, await response.read()

    async def json(self, path: str, method: str = "GET", **more: Any) -> tuple[int, Any]:
        status, _, body = await self.call(path, method, **more)
        return status, json.loads(body)

    async def raw(self, data: bytes, surface: str = "inference") -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[surface])
        writer.write(data)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return answer


Start = Callable[..., Awaitable[Server]]


def write_model(directory: Path, **config: object) -> None:
    (directory / "MAR-INF").mkdir(parents=True, exist_ok=True)
    model = {"modelName": "echo", "handler": "service.py", "modelVersion": "1.0"}
    manifest = {"runtime": "python", "model": model}
    (directory / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
    (directory / "service.py").write_text(HANDLER)
