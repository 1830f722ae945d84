"""Models managed over real sockets, with real workers."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.frontend.http_server import Start


async def test_token_renewal(start: Start, tmp_path: Path) -> None:
    server = await start(disable_token_authorization=False)
    path = tmp_path / "key_file.json"
    keys = json.loads(path.read_text())
    api = {"Authorization": f"Bearer {keys['API']['key']}"}
    status, _, body = await server.call("/token?type=inference", surface="management", headers=api)

    assert (status, body) == (200, b"\n")
    assert json.loads(path.read_text())["inference"]["key"] != keys["inference"]["key"]
    old = {"Authorization": f"Bearer {keys['inference']['key']}"}
    assert (await server.call("/ping", headers=old))[0] == 400
    for query in ("", "?type=x"):
        assert (await server.call(f"/token{query}", surface="management", headers=api))[0] == 400
    assert (await server.call("/token?type=inference", surface="management"))[0] == 400


async def test_model_api_can_be_off(start: Start) -> None:
    server = await start(enable_model_api=False)
    for method, path in (("POST", "/models?url=echo"), ("DELETE", "/models/echo")):
        status, error = await server.json(path, method, surface="management")
        assert (status, error["type"]) == (405, "MethodNotAllowedException")
        assert "--enable-model-api" in error["message"]
    assert (await server.json("/models", surface="management"))[0] == 200


async def test_life_of_a_model(start: Start) -> None:
    server = await start()

    async def manage(method: str, path: str) -> tuple[int, str]:
        status, answer = await server.json(path, method, surface="management")
        return status, answer.get("status") or answer["message"]

    assert await manage("POST", "/models?url=echo&model_name=m") == (
        200,
        'Model "m" Version: 1.0 registered with 0 initial workers. '
        "Use scale workers API to add workers for the model.",
    )
    assert (await manage("POST", "/models?url=echo&model_name=m"))[0] == 409
    assert (await server.json("/predictions/m"))[0] == 503
    assert await manage("PUT", "/models/m?min_worker=1&synchronous=true") == (
        200,
        "Workers scaled to 1 for model: m",
    )
    assert (await server.json("/predictions/m"))[0] == 200
    assert await server.json("/v1/models/m", surface="management") == (
        200,
        {"name": "m", "ready": True},
    )
    assert await manage("PUT", "/models/m/1.0?min_worker=1") == (
        202,
        "Processing worker updates...",
    )
    assert await manage("PUT", "/models/m?min_worker=2&max_worker=1") == (
        400,
        "max_worker cannot be less than min_worker. (1 < 2)",
    )
    assert await manage("PUT", "/models/m/1.0/set-default") == (
        200,
        'Default version successfully updated for model "m" to "1.0"',
    )
    assert await manage("DELETE", "/models/m") == (200, 'Model "m" unregistered')
    assert (await server.json("/predictions/m"))[0] == 404
    assert await manage("POST", "/models?url=echo&initial_workers=1&synchronous=false") == (
        202,
        "Processing worker updates...",
    )
    assert await manage("POST", "/models?url=echo&model_name=n&initial_workers=1") == (
        200,
        'Model "n" Version: 1.0 registered with 1 initial workers',
    )
    _, page = await server.json("/models?limit=1", surface="management")
    assert page == {"nextPageToken": "1", "models": [{"modelName": "echo", "modelUrl": "echo"}]}


KEYS = [
    "modelName",
    "modelVersion",
    "modelUrl",
    "runtime",
    "minWorkers",
    "maxWorkers",
    "batchSize",
    "maxBatchDelay",
    "responseTimeout",
    "startupTimeout",
    "maxRetryTimeoutInSec",
    "clientTimeoutInMills",
    "parallelType",
    "parallelLevel",
    "deviceType",
    "continuousBatching",
    "useJobTicket",
    "useVenv",
    "stateful",
    "sequenceMaxIdleMSec",
    "sequenceTimeoutMSec",
    "maxNumSequence",
    "maxSequenceJobQueueSize",
    "loadedAtStartup",
    "workers",
    "jobQueueStatus",
    "jobQueueSize",
]


async def test_describe(start: Start) -> None:
    server = await start(with_model=True)
    for path in ("/models/echo", "/models/echo/1.0", "/models/echo/all"):
        status, (described,) = await server.json(path, surface="management")
        assert status == 200
        assert list(described) == KEYS
    worker = described["workers"][0]

    assert (described["modelName"], described["modelVersion"]) == ("echo", "1.0")
    assert (described["minWorkers"], described["batchSize"]) == (1, 1)
    assert list(worker) == ["id", "startTime", "status", "memoryUsage", "pid", "gpu", "gpuUsage"]
    assert (worker["id"], worker["status"], worker["gpu"]) == ("9000", "READY", False)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", worker["startTime"])
    assert worker["memoryUsage"] > 1 << 20
    assert described["jobQueueStatus"] == {"remainingCapacity": 100, "pendingRequests": 0}
    status, error = await server.json("/models/echo/9", surface="management")
    assert (status, error["type"]) == (404, "ModelVersionNotFoundException")


async def test_describe_asks_the_handler(start: Start) -> None:
    server = await start(with_model=True)
    path = "/models/echo?customized=true"
    status, (described,) = await server.json(path, surface="management")

    assert status == 200
    assert described["customizedMetadata"]["row"] == {}
    await server.json("/models?url=echo&model_name=idle", "POST", surface="management")
    status, error = await server.json("/models/idle?customized=true", surface="management")
    assert status == 503
    assert "no worker to serve describe request" in error["message"]


async def test_describe_tells_why_workers_are_missing(start: Start, tmp_path: Path) -> None:
    server = await start()
    (tmp_path / "store" / "echo" / "service.py").write_text("import no_such_module")
    path = "/models?url=echo&initial_workers=1"
    status, error = await server.json(path, "POST", surface="management")

    assert (status, error["type"]) == (500, "InternalServerException")
    assert "Failed to start workers for model echo version: 1.0" in error["message"]
    assert "no_such_module" in error["message"]
    assert (await server.json("/models/echo", surface="management"))[0] == 404
    await server.json(path + "&synchronous=false", "POST", surface="management")
    assert not await server.services.registry.resolve("echo").pool.settled(1)
    _, (described,) = await server.json("/models/echo", surface="management")
    assert "no_such_module" in described["lastError"]
    assert any("no_such_module" in line for line in described["lastErrorDetail"])
