"""The management service over gRPC: the life of a model, and the same words as over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.e2e.grpc_clients import LIMIT_S, Clients, failure
from tests.e2e.running import running

from marserve.frontend.grpc import management_pb2 as pb

Code = grpc.StatusCode


class Manager:
    """Calls of the management service, by name."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.server = clients.server

    def __call__(self, method: str, **fields: Any) -> str:
        message = getattr(pb, f"{method}Request")(**fields)
        stub = getattr(self.clients.management, method)
        return str(stub(message, timeout=LIMIT_S).msg)

    def fails(self, method: str, **fields: Any) -> tuple[grpc.StatusCode, str]:
        return failure(lambda: self(method, **fields))


def manager(path: Any, **more: Any) -> Iterator[Manager]:
    for server in running(path, models=None, **more):
        for version in ("1.0", "2.0"):
            server.pack("versioned", "versioned", version=version).rename(
                server.store / f"v{version[0]}.mar"
            )
        server.pack("echo", "echo")
        with Clients(server.start()) as made:
            yield Manager(made)


@pytest.fixture(scope="module")
def manage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    yield from manager(tmp_path_factory.mktemp("managed"))


def test_the_life_of_a_model(manage: Manager) -> None:
    first = manage("RegisterModel", url="v1.mar", initial_workers=1, synchronous=True)
    second = manage("RegisterModel", url="v2.mar", initial_workers=1, synchronous=True)
    which = 'Model "versioned" Version: {} registered with 1 initial workers'

    assert [which.format("1.0"), which.format("2.0")] == [first, second]
    assert b"1.0" == manage.clients.predict("versioned")
    assert 'Default version successfully updated for model "versioned" to "2.0"' == manage(
        "SetDefault", model_name="versioned", model_version="2.0"
    )
    assert b"2.0" == manage.clients.predict("versioned")
    assert "Workers scaled to 2 for model: versioned, version: 1.0" == manage(
        "ScaleWorker",
        model_name="versioned",
        model_version="1.0",
        min_worker=2,
        max_worker=2,
        synchronous=True,
    )
    one, two = json.loads(manage("DescribeModel", model_name="versioned", model_version="all"))
    assert [("1.0", 2), ("2.0", 1)] == [
        (each["modelVersion"], len(each["workers"])) for each in (one, two)
    ]
    in_use = manage.fails("UnregisterModel", model_name="versioned", model_version="2.0")
    assert Code.PERMISSION_DENIED == in_use[0]
    gone = 'Model "versioned" unregistered'
    assert gone == manage("UnregisterModel", model_name="versioned", model_version="1.0")
    assert gone == manage("UnregisterModel", model_name="versioned")
    assert (Code.NOT_FOUND, "Model not found: versioned") == manage.fails(
        "DescribeModel", model_name="versioned"
    )


def test_lists_and_descriptions_are_those_of_http(manage: Manager) -> None:
    for name in ("a", "b", "c"):
        manage("RegisterModel", url="echo.mar", model_name=name)
    listed = json.loads(manage("ListModels", limit=2))
    rest = json.loads(manage("ListModels", limit=2, next_page_token=2))
    everything = json.loads(manage("ListModels"))
    described = json.loads(manage("DescribeModel", model_name="a"))

    assert manage.server.manage("GET", "/models?limit=2").json == listed
    assert ["a", "b"] == [entry["modelName"] for entry in listed["models"]]
    assert ["c"] == [entry["modelName"] for entry in rest["models"]]
    assert ["a", "b", "c"] == [entry["modelName"] for entry in everything["models"]]
    assert manage.server.manage("GET", "/models/a").json == described
    for name in ("a", "b", "c"):
        manage("UnregisterModel", model_name=name)


def test_numbers_say_what_they_say_over_http(manage: Manager) -> None:
    manage(
        "RegisterModel",
        url="echo.mar",
        model_name="numbered",
        batch_size=4,
        max_batch_delay=0,
        response_timeout=7,
        startup_timeout=50,
        initial_workers=0,
    )
    found = manage.server.describe("numbered")
    scaled = manage("ScaleWorker", model_name="numbered", min_worker=0, synchronous=True)
    absent = manage("ScaleWorker", model_name="numbered", synchronous=True)
    manage("UnregisterModel", model_name="numbered")

    assert (4, 0, 7, 50) == (
        found["batchSize"],
        found["maxBatchDelay"],
        found["responseTimeout"],
        found["startupTimeout"],
    )
    assert [] == found["workers"]
    assert "Workers scaled to 0 for model: numbered" == scaled
    assert "Workers scaled to 1 for model: numbered" == absent


def test_calls_return_at_once_if_not_asked_to_wait(manage: Manager) -> None:
    said = manage("RegisterModel", url="echo.mar", model_name="later", initial_workers=1)
    scaled = manage("ScaleWorker", model_name="later", min_worker=2, max_worker=2)
    manage.server.until(lambda: len(manage.server.worker_pids("later")) == 2, "no workers")
    manage("UnregisterModel", model_name="later")

    assert "Processing worker updates..." == said == scaled


@pytest.mark.parametrize(
    ("method", "fields", "code", "text"),
    [
        ("RegisterModel", {}, Code.INVALID_ARGUMENT, "Parameter url is required."),
        ("RegisterModel", {"url": "no.mar"}, Code.NOT_FOUND, "Model not found at: no.mar"),
        ("DescribeModel", {}, Code.INVALID_ARGUMENT, "Parameter model_name is required."),
        ("UnregisterModel", {"model_name": "no"}, Code.NOT_FOUND, "Model not found: no"),
        (
            "SetDefault",
            {"model_name": "no"},
            Code.INVALID_ARGUMENT,
            "Parameter model_version is required.",
        ),
    ],
)
def test_errors(
    manage: Manager, method: str, fields: dict[str, Any], code: grpc.StatusCode, text: str
) -> None:
    assert (code, text) == manage.fails(method, **fields)


def test_a_version_can_be_registered_once(manage: Manager) -> None:
    manage("RegisterModel", url="echo.mar", model_name="twice")
    code, text = manage.fails("RegisterModel", url="echo.mar", model_name="twice")
    answer = manage.server.manage("POST", "/models?url=echo.mar&model_name=twice")
    manage("UnregisterModel", model_name="twice")

    assert (Code.ABORTED, (409, text)) == (code, (answer.status, answer.message))


def test_a_fewer_most_than_least_is_refused(manage: Manager) -> None:
    manage("RegisterModel", url="echo.mar", model_name="few")
    refused = manage.fails("ScaleWorker", model_name="few", min_worker=2, max_worker=1)
    manage("UnregisterModel", model_name="few")

    assert (
        Code.INVALID_ARGUMENT,
        "max_worker cannot be less than min_worker. (1 < 2)",
    ) == refused


def test_with_the_model_api_off(tmp_path: Any) -> None:
    for manage in manager(tmp_path, arguments=("--disable-token-auth",)):
        register = manage.fails("RegisterModel", url="echo.mar")
        unregister = manage.fails("UnregisterModel", model_name="echo")
        listed = manage("ListModels")

        assert Code.PERMISSION_DENIED == register[0] == unregister[0]
        assert "--enable-model-api" in register[1]
        assert {"models": []} == json.loads(listed)
