"""The management API: the real server, real archives, curl."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.curling import Curling, Response
from tests.e2e.running import Running, running

LOADING = {"status": "Processing worker updates..."}


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Curling]:
    for server in running(tmp_path_factory.mktemp("management"), models=None):
        for name in ("broken_load", "broken_import", "slow"):
            server.pack(name, name)
        server.pack("echo_class", "echo_class", version="2.0").rename(server.store / "second.mar")
        server.pack("echo_class", "echo_class")
        yield Curling(server.start())


@pytest.fixture
def served(module_server: Curling) -> Iterator[Curling]:
    """The server without any model."""
    server = module_server
    yield server
    while models := server.manage("GET", "/models").json()["models"]:
        for model in models:
            name = model["modelName"]
            versions = server.manage("GET", f"/models/{name}/all").json()
            for each in reversed(versions):
                server.manage("DELETE", f"/models/{name}/{each['modelVersion']}")
            server.manage("DELETE", f"/models/{name}")


def said(answer: Response) -> tuple[int, str]:
    body = answer.json()
    return answer.status, body.get("status") or body["message"]


def describe(served: Curling, path: str) -> list[dict[str, object]]:
    return list(served.manage("GET", f"/models/{path}").json())


def test_register_without_workers_then_scale(served: Curling) -> None:
    text = (
        'Model "echo_class" Version: 1.0 registered with 0 initial workers. '
        "Use scale workers API to add workers for the model."
    )
    assert said(served.manage("POST", "/models?url=echo_class.mar")) == (200, text)
    refused = served.curl("/predictions/echo_class")
    assert (refused.status, refused.json()["type"]) == (503, "ServiceUnavailableException")
    assert refused.json()["message"].startswith('Model "echo_class" has no worker to serve')

    path = "/models/echo_class?min_worker=2&synchronous=true"
    assert said(served.manage("PUT", path)) == (200, "Workers scaled to 2 for model: echo_class")
    (described,) = describe(served, "echo_class")
    assert isinstance(described["workers"], list)
    assert [worker["status"] for worker in described["workers"]] == ["READY", "READY"]
    assert served.curl("/predictions/echo_class").status == 200

    path = "/models/echo_class/1.0?min_worker=1&synchronous=true"
    text = "Workers scaled to 1 for model: echo_class, version: 1.0"
    assert said(served.manage("PUT", path)) == (200, text)
    (described,) = describe(served, "echo_class")
    assert isinstance(described["workers"], list)
    assert len(described["workers"]) == 1
    assert said(served.manage("PUT", "/models/echo_class?min_worker=0")) == (202, LOADING["status"])


def test_register_with_everything(served: Curling) -> None:
    query = (
        "url=echo_class.mar&model_name=mine&batch_size=4&max_batch_delay=7&initial_workers=1"
        "&response_timeout=33&startup_timeout=44&synchronous=true"
    )
    text = 'Model "mine" Version: 1.0 registered with 1 initial workers'
    assert said(served.manage("POST", f"/models?{query}")) == (200, text)

    (described,) = describe(served, "mine")
    expected = {
        "modelName": "mine",
        "modelVersion": "1.0",
        "modelUrl": "echo_class.mar",
        "batchSize": 4,
        "maxBatchDelay": 7,
        "responseTimeout": 33,
        "startupTimeout": 44,
        "minWorkers": 1,
        "maxWorkers": 1,
        "loadedAtStartup": False,
    }
    assert {key: described[key] for key in expected} == expected
    assert served.curl("/predictions/mine").json()["model"] == "mine"


@pytest.mark.parametrize("quote", ['"', "'"])
def test_register_by_json(served: Curling, quote: str) -> None:
    body = json.dumps({"url": "echo_class.mar", "batch_size": "3", "initial_workers": 1})
    kind = ("-H", "Content-Type: application/json", "-d", body.replace('"', quote))
    assert served.manage("POST", "/models", *kind).status == 200

    assert describe(served, "echo_class")[0]["batchSize"] == 3


def test_versions_side_by_side(served: Curling) -> None:
    for url in ("echo_class.mar", "second.mar"):
        assert served.manage("POST", f"/models?url={url}&initial_workers=1").status == 200

    def version(path: str = "") -> object:
        return served.curl(f"/predictions/echo_class{path}").json()["version"]

    assert (version(), version("/1.0"), version("/2.0")) == ("1.0", "1.0", "2.0")
    assert [each["modelVersion"] for each in describe(served, "echo_class/all")] == ["1.0", "2.0"]
    assert served.manage("GET", "/models").json() == {
        "models": [{"modelName": "echo_class", "modelUrl": "echo_class.mar"}]
    }
    conflict = said(served.manage("POST", "/models?url=second.mar"))
    assert conflict == (409, "Model version 2.0 is already registered for model echo_class")
    in_use = served.manage("DELETE", "/models/echo_class")
    assert in_use.json()["type"] == "InvalidModelVersionException"
    assert said(in_use) == (403, "Cannot remove default version for model echo_class")
    text = 'Default version successfully updated for model "echo_class" to "2.0"'
    assert said(served.manage("PUT", "/models/echo_class/2.0/set-default")) == (200, text)
    assert version() == "2.0"
    missing = said(served.manage("PUT", "/models/echo_class/3.0/set-default"))
    assert missing == (404, "Model version 3.0 does not exist for model echo_class")
    gone = said(served.manage("DELETE", "/models/echo_class/1.0"))
    assert gone == (200, 'Model "echo_class" unregistered')
    assert served.curl("/predictions/echo_class/1.0").status == 404
    assert version() == "2.0"


@pytest.mark.parametrize("service", ["broken_load", "broken_import"])
def test_model_that_cannot_load(served: Curling, service: str) -> None:
    answer = served.manage("POST", f"/models?url={service}.mar&initial_workers=1")
    status, message = said(answer)

    assert (status, answer.json()["type"]) == (500, "InternalServerException")
    assert message.startswith(f"Failed to start workers for model {service} version: 1.0")
    assert "Cause: " in message
    assert served.manage("GET", f"/models/{service}").status == 404


def test_asynchronous_registration(served: Curling) -> None:
    path = "/models?url=echo_class.mar&initial_workers=1&synchronous=false"
    answer = served.manage("POST", path)

    assert (answer.status, answer.json()) == (202, LOADING)
    assert served.manage("PUT", "/models/echo_class?min_worker=1&synchronous=true").status == 200
    assert served.manage("GET", "/v1/models/echo_class").json() == {
        "name": "echo_class",
        "ready": True,
    }


def test_pages(served: Curling) -> None:
    for i in range(3):
        served.manage("POST", f"/models?url=echo_class.mar&model_name=m{i}")
    first = served.manage("GET", "/models?limit=2").json()
    second = served.manage(
        "GET", f"/models?limit=2&next_page_token={first['nextPageToken']}"
    ).json()

    names = [model["modelName"] for model in first["models"] + second["models"]]
    assert names == ["m0", "m1", "m2"]
    assert "nextPageToken" not in second


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/models", 400, "Parameter url is required."),
        ("POST", "/models?url=", 404, "empty url"),
        ("POST", "/models?url=none.mar", 404, "Model not found at: none.mar"),
        ("POST", "/models?url=../x.mar", 404, "Relative path is not allowed in url: ../x.mar"),
        (
            "POST",
            "/models?url=http://127.0.0.1:1/x.mar",
            404,
            "Given URL http://127.0.0.1:1/x.mar does not match any allowed URL(s)",
        ),
        (
            "POST",
            "/models?url=echo_class.mar&batch_size=many",
            400,
            "Parameter batch_size must be an integer, not 'many'.",
        ),
        ("POST", "/models?url=echo_class.mar&model_name=a/b", 400, ""),
        ("GET", "/models/none", 404, "Model not found: none"),
        ("PUT", "/models/none?min_worker=1", 404, "Model not found: none"),
        ("DELETE", "/models/none", 404, "Model not found: none"),
        (
            "PATCH",
            "/models",
            405,
            "Requested method is not allowed, please refer to API document.",
        ),
        ("GET", "/none", 404, "Requested resource is not found, please refer to API document."),
    ],
)
def test_refusals_change_nothing(
    served: Curling, method: str, path: str, status: int, message: str
) -> None:
    found, text = said(served.manage(method, path))

    assert found == status
    assert message in text
    assert served.manage("GET", "/models").json() == {"models": []}


def test_unpacked_files_do_not_stay(served: Curling) -> None:
    scratch = served.root / "tmp"

    def unpacked() -> list[Path]:
        return [path for path in scratch.glob("marserve-*/*") if path.is_dir()]

    served.manage("POST", "/models?url=echo_class.mar&initial_workers=1")
    assert len(unpacked()) == 1
    served.manage("DELETE", "/models/echo_class")
    assert unpacked() == []
    served.manage("POST", "/models?url=broken_load.mar&initial_workers=1")
    assert unpacked() == []
    assert sorted(os.listdir(served.server.store)) == sorted(
        f"{name}.mar" for name in ("broken_import", "broken_load", "echo_class", "second", "slow")
    )


def test_unregister_answers_what_was_accepted(served: Curling) -> None:
    served.manage("POST", "/models?url=slow.mar&initial_workers=1")
    log = served.root / "logs" / "model_log.log"
    body = ("-H", "Content-Type: text/plain", "-d", "0.5")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(served.curl, "/predictions/slow", *body)
        served.server.until(lambda: "batch of 1 begins" in log.read_text(), "work begins")
        assert served.manage("DELETE", "/models/slow").status == 200
        assert waiting.result().text == "slept 0.5"


def test_tokens_and_model_api_by_default(server: Running) -> None:
    server.arguments, server.properties = (), "default_workers_per_model=1"
    server.pack("echo", "echo")
    served = Curling(server.start())
    path = server.root / "key_file.json"
    keys = json.loads(path.read_text())
    inference, management, api = (
        ("-H", f"Authorization: Bearer {keys[kind]['key']}")
        for kind in ("inference", "management", "API")
    )

    assert served.curl("/ping").json()["type"] == "InvalidKeyException"
    assert served.curl("/ping", *management).status == 400
    assert served.curl("/predictions/echo", *inference).status == 200
    assert served.manage("GET", "/models").status == 400
    assert served.manage("GET", "/models", *management).status == 200
    assert served.manage("POST", "/models?url=echo.mar", *management).status == 405
    assert served.manage("DELETE", "/models/echo", *management).status == 405
    assert served.curl("/metrics", surface="metrics").status == 200
    assert served.manage("GET", "/token?type=management", *api).body == b"\n"
    assert served.manage("GET", "/models", *management).status == 400
    renewed = json.loads(path.read_text())["management"]["key"]
    bearer = ("-H", f"Authorization: Bearer {renewed}")
    assert served.manage("GET", "/models", *bearer).status == 200
