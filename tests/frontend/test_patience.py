"""Clients that say nothing, or say it endlessly, on either way: each has a limit."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from tests.frontend.http_server import Start

from marserve.frontend.address import Address
from marserve.frontend.api import exchange, forms, inference
from marserve.frontend.api.app import build_apps
from marserve.frontend.api.routing import Router
from marserve.frontend.errors import BadRequest
from marserve.frontend.sites import Sites


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def connections() -> int:
    """Returns how many of aiohttp's connections are in memory."""
    gc.collect()
    # By type alone: isinstance asks proxies in other modules, which may warn when they are asked.
    return sum(type(each) is web.RequestHandler for each in gc.get_objects())


@contextlib.asynccontextmanager
async def listening(start: Start, **settings: Any) -> AsyncIterator[dict[str, int]]:
    """Serves on sockets as the real server does; yields the ports."""
    services = (await start(**settings)).services
    ports = {name: free_port() for name in ("inference", "management", "metrics")}
    addresses = {name: Address("http", "127.0.0.1", port) for name, port in ports.items()}
    config = replace(
        services.config,
        inference_address=addresses["inference"],
        management_address=addresses["management"],
        metrics_address=addresses["metrics"],
    )
    sites = Sites(config, build_apps(replace(services, config=config)))
    await sites.bind()
    try:
        yield ports
    finally:
        await sites.close()


@pytest.mark.parametrize(
    ("surface", "beginning"),
    [  # an idle connection of the short way has a limit of its own
        ("inference", b"G"),
        ("inference", b"POST /predictions"),
        ("inference", b"GET /ping HTTP/1.1\r\nHo"),
        ("management", b""),
        ("management", b"G"),
    ],
)
async def test_client_that_never_finishes_its_first_head_is_given_up(
    start: Start, monkeypatch: pytest.MonkeyPatch, surface: str, beginning: bytes
) -> None:
    monkeypatch.setattr(exchange, "STALL_S", 0.2)
    async with listening(start) as ports:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[surface])
        writer.write(beginning)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            received = await asyncio.wait_for(reader.read(), 10)
        assert received == b""
        writer.close()


async def test_connections_that_have_ended_are_not_kept_in_memory(start: Start) -> None:
    async with listening(start) as ports:
        before = connections()
        for surface in ("inference", "management") * 5:
            reader, writer = await asyncio.open_connection("127.0.0.1", ports[surface])
            writer.write(b"GET /ping HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 ")
            writer.close()
        async with asyncio.timeout(10):  # the far end sees the end a little later
            while connections() > before:  # noqa: ASYNC110 - nothing tells when memory is freed
                await asyncio.sleep(0.01)


def test_paths_that_clients_invent_do_not_fill_the_memory() -> None:
    router = Router(inference.routes())
    tracemalloc.start()
    try:
        for i in range(2000):
            router.match("POST", f"/predictions/m/{i}/" + "x" * 20_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 4_000_000


def test_endless_head_of_a_part_is_refused() -> None:
    body = b"--b\r\n" + b"a: b\r\n" * 500_000 + b"\r\nx\r\n--b--\r\n"

    with pytest.raises(BadRequest, match="headers do not end within"):
        forms.parse_multipart("multipart/form-data; boundary=b", body)
