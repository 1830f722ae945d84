"""Predictions over real sockets, by a real worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import aiohttp
from tests.frontend.http_server import Start

from marserve.frontend.registration import Registration


async def test_rows_as_the_handler_sees_them(start: Start) -> None:
    server = await start(with_model=True)
    form = aiohttp.FormData()
    form.add_field("data", b"[1]", filename="x.json", content_type="application/json")
    form.add_field("text", "plain")
    headers = {"X-Case": "Kept"}

    async def row(path: str, **more: Any) -> Any:
        return (await server.json(path, "POST", **more))[1]

    plain = await row("/predictions/echo", data=b"hello", headers=headers)
    assert plain["row"] == {"body": "hello"}
    assert plain["headers"] == {"explain": "False", "url_path": "", "X-Case": "Kept"}
    deep = await row("/predictions/echo/1.0/a/b%20c?x=1", json={"a": 1})
    assert deep["row"] == {"body": {"a": 1}}
    assert deep["headers"]["url_path"] == "a/b c"
    assert (await row("/explanations/echo", data=b""))["headers"]["explain"] == "True"
    assert (await row("/predictions/echo", data=form))["row"] == {"data": [1], "text": "plain"}
    assert (await row("/predictions/echo", data={"a": "b"}))["row"] == {"a": "b"}
    assert (await row("/echo/predict?x=1", data=b"y"))["row"] == {"x": "1", "body": "y"}
    assert (await row("/echo/1.0/predict", data=b"y"))["row"] == {"body": "y"}
    invoked = await row("/invocations?x=1", data=b"y")
    assert invoked["row"] == {"x": "1", "body": "y"}
    assert (await row("/v1/models/echo:predict", json={}))["row"] == {"body": {}}
    assert (await row("/v1/models/echo:explain", json={}))["headers"]["explain"] == "True"


async def test_content_type_is_the_handlers(start: Start) -> None:
    server = await start(with_model=True)
    _, untyped, _ = await server.call("/predictions/echo")
    _, typed, _ = await server.call("/predictions/echo", headers={"typed": "1"})

    assert "Content-Type" not in untyped.headers
    assert typed.headers.getall("Content-Type") == ["text/x-test"]


async def test_large_answers(start: Start) -> None:
    server = await start(with_model=True)
    _, response, body = await server.call("/predictions/echo", headers={"size": "5000000"})

    assert len(body) == 5_000_000
    assert response.headers["Content-Length"] == "5000000"


async def test_handler_error_names_the_cause(start: Start) -> None:
    server = await start(with_model=True)
    status, error = await server.json("/predictions/echo", headers={"fail": "1"})

    assert status == 500
    assert error["type"] == "InternalServerException"
    assert "ValueError: asked to" in error["message"]


async def test_version_that_is_not_there(start: Start) -> None:
    server = await start(with_model=True)
    status, error = await server.json("/predictions/echo/9.9")

    assert (status, error["type"]) == (404, "ModelVersionNotFoundException")
    assert error["message"] == "Model version: 9.9 does not exist for model: echo"


async def test_time_limit_of_the_client(start: Start) -> None:
    server = await start(with_model=True)
    assert (await server.json("/predictions/echo", headers={"x-request-timeout": "x"}))[0] == 400
    assert (await server.json("/predictions/echo", headers={"x-request-timeout": "30"}))[0] == 200


async def test_health(start: Start) -> None:
    server = await start()
    assert await server.json("/health/live") == (200, {"live": True})
    assert await server.json("/health/ready") == (200, {"ready": True})
    await server.services.registry.register(Registration("echo", initial_workers=1))
    assert await server.json("/health/ready") == (200, {"ready": True})
    await server.services.registry.drain(1)
    status, answer = await server.json("/health/ready")
    assert (status, answer["ready"]) == (503, False)


async def test_names_of_models_without_workers_are_for_those_with_a_key(start: Start) -> None:
    server = await start(with_model=True, disable_token_authorization=False)
    (worker,) = server.services.registry.resolve("echo").pool.workers
    os.kill(worker.pids[0], signal.SIGSTOP)
    try:
        async with asyncio.timeout(10):
            while (await server.json("/health/ready"))[0] == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        stranger = await server.json("/health/ready")
        keys = json.loads(server.services.auth.path.read_text())
        known = {"Authorization": f"Bearer {keys['inference']['key']}"}
        friend = await server.json("/health/ready", headers=known)
    finally:
        os.kill(worker.pids[0], signal.SIGCONT)

    assert stranger == (503, {"ready": False, "without_workers": 1})
    assert friend == (503, {"ready": False, "models_without_workers": ["echo"]})
