"""What all HTTP surfaces share, over real sockets, with a real registry and a real worker."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest
from tests.frontend.http_server import Start

from marserve.frontend.address import Address

CONSTANT = {
    "Pragma": "no-cache",
    "Cache-Control": "no-cache; no-store, must-revalidate, private",
    "Expires": "Thu, 01 Jan 1970 00:00:00 UTC",
}


async def test_constant_headers(start: Start) -> None:
    server = await start()
    status, response, body = await server.call("/ping")

    assert status == 200
    assert body == b'{\n  "status": "Healthy"\n}\n'
    assert uuid.UUID(response.headers["x-request-id"]).version == 4
    assert {name: response.headers[name] for name in CONSTANT} == CONSTANT
    assert "Server" not in response.headers


async def test_request_ids_of_clients_are_ignored(start: Start) -> None:
    server = await start()
    _, response, _ = await server.call("/ping", headers={"x-request-id": "mine"})

    assert response.headers.getall("x-request-id") != ["mine"]


async def test_cors(start: Start) -> None:
    server = await start(cors_allowed_origin="https://a", cors_allowed_methods="GET, POST")
    _, response, _ = await server.call("/nope")

    assert response.headers["Access-Control-Allow-Origin"] == "https://a"
    assert response.headers["Access-Control-Allow-Methods"] == "GET, POST"
    assert "Access-Control-Allow-Headers" not in response.headers


@pytest.mark.parametrize(
    ("method", "path", "surface", "status", "kind"),
    [
        ("GET", "/nope", "inference", 404, "ResourceNotFoundException"),
        ("GET", "/", "inference", 405, "MethodNotAllowedException"),
        ("GET", "/models", "inference", 404, "ResourceNotFoundException"),
        ("GET", "/predictions/none", "inference", 404, "ModelNotFoundException"),
        ("GET", "/predictions/none/1.0", "inference", 404, "ModelNotFoundException"),
        ("POST", "/predictions/a%2Fb", "inference", 404, "ModelNotFoundException"),
        ("POST", "/predictions/%2e%2e", "inference", 404, "ModelNotFoundException"),
        ("POST", "/explanations/none", "inference", 404, "ModelNotFoundException"),
        ("POST", "/v1/models/none:predict", "inference", 404, "ModelNotFoundException"),
        ("POST", "/invocations", "inference", 400, "BadRequestException"),
        ("PUT", "/health/live", "inference", 405, "MethodNotAllowedException"),
        ("OPTIONS", "/predictions/none", "inference", 404, "ModelNotFoundException"),
        ("PATCH", "/models", "management", 405, "MethodNotAllowedException"),
        ("POST", "/models", "management", 400, "BadRequestException"),
        ("POST", "/models?url=", "management", 404, "ModelNotFoundException"),
        ("POST", "/models?url=none.mar", "management", 404, "ModelNotFoundException"),
        ("POST", "/models?url=http://h/x.mar", "management", 404, "ModelNotFoundException"),
        ("POST", "/models?url=echo&batch_size=x", "management", 400, "BadRequestException"),
        ("GET", "/models/none", "management", 404, "ModelNotFoundException"),
        ("GET", "/models/none/all", "management", 404, "ModelNotFoundException"),
        ("PUT", "/models/none", "management", 404, "ModelNotFoundException"),
        ("PUT", "/models/none/1.0/set-default", "management", 404, "ModelNotFoundException"),
        ("DELETE", "/models/none", "management", 404, "ModelNotFoundException"),
        ("GET", "/v1/models/none", "management", 404, "ModelNotFoundException"),
        ("GET", "/", "metrics", 405, "MethodNotAllowedException"),
        ("POST", "/metrics", "metrics", 405, "MethodNotAllowedException"),
    ],
)
async def test_errors(
    start: Start, method: str, path: str, surface: str, status: int, kind: str
) -> None:
    server = await start()
    found, response, body = await server.call(path, method, surface)
    error = json.loads(body)

    assert (found, error["code"], error["type"]) == (status, status, kind)
    assert response.content_type == "application/json"
    assert error["message"]


async def test_unknown_paths_need_the_key_too(start: Start, tmp_path: Path) -> None:
    server = await start(disable_token_authorization=False)
    keys = json.loads((tmp_path / "key_file.json").read_text())
    right = {"Authorization": f"Bearer {keys['inference']['key']}"}
    wrong = {"Authorization": f"Bearer {keys['management']['key']}"}

    for path in ("/nope", "/ping", "/predictions/none", "/v1/models/x:predict", "/m/predict"):
        status, error = await server.json(path)
        assert (status, error["type"]) == (400, "InvalidKeyException")
        assert (await server.json(path, headers=wrong))[0] == 400
        assert (await server.json(path, headers=right))[0] in (200, 404)
    for path in ("/models", "/models/x", "/v1/models/x", "/nope"):
        assert (await server.json(path, surface="management", headers=right))[0] == 400
        assert (await server.json(path, surface="management", headers=wrong))[0] in (200, 404)
    for path, surface in (("/api-description", "inference"), ("/metrics", "metrics")):
        assert (await server.call(path, surface=surface))[0] == 200


async def test_one_address_for_all(start: Start) -> None:
    one = Address("http", "127.0.0.1", 8080)
    server = await start(
        with_model=True,
        inference_address=one,
        management_address=one,
        metrics_address=one,
    )
    assert len(set(server.ports.values())) == 1
    assert (await server.json("/models"))[1]["models"][0]["modelName"] == "echo"
    assert (await server.call("/predictions/echo"))[0] == 200
    assert (await server.call("/models/echo/invoke", "POST"))[0] == 200
    assert (await server.call("/metrics"))[0] == 200


async def test_metrics_can_be_off(start: Start) -> None:
    assert set((await start(enable_metrics_api=False)).ports) == {"inference", "management"}


async def test_access_log_and_counters(start: Start) -> None:
    server = await start()
    await server.call("/ping?a=b")
    await server.call("/nope")
    _, response, body = await server.call("/metrics?name[]=Requests4XX", surface="metrics")

    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert re.search(r"^Requests4XX\{.*,\} 1\.0$", body.decode(), re.MULTILINE)
    server.log.close()
    assert re.search(r' - /127\.0\.0\.1:\d+ "GET /ping\?a=b HTTP/1\.1" 200 \d+$', server.lines[0])
    assert re.search(r'"GET /nope HTTP/1\.1" 404 \d+$', server.lines[1])


async def test_documents(start: Start) -> None:
    server = await start(with_model=True)
    for surface in ("inference", "management", "metrics"):
        by_options = await server.json("/", "OPTIONS", surface=surface)
        by_path = await server.json("/api-description", surface=surface)
        assert by_options == by_path
        assert by_path[1]["openapi"] == "3.0.1"
    status, model = await server.json("/predictions/echo", "OPTIONS")
    assert (status, model["info"]["version"]) == (200, "1.0.0")
    assert (await server.json("/models/echo", "OPTIONS", surface="management"))[0] == 200


# -- hostile and unlucky clients -----------------------------------------------------------------
