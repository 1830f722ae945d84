from __future__ import annotations

import re
from typing import Any

import pytest
from openapi_spec_validator import validate

from marserve.frontend.api import inference, management, metrics, openapi, v1, v2, workflows
from marserve.frontend.api.openapi_operations import OPERATIONS
from marserve.frontend.api.openapi_v2 import V2_OPERATIONS
from marserve.frontend.api.routing import Route, Router

TABLES = {
    "inference": inference.routes() + v1.routes() + v2.routes() + workflows.inference_routes(),
    "management": management.routes(model_api=True) + workflows.management_routes(model_api=True),
    "metrics": metrics.routes(),
}
EVERYTHING = [route for table in TABLES.values() for route in table]


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method, path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


@pytest.mark.parametrize(("role", "table"), [*TABLES.items(), ("inference", EVERYTHING)])
def test_documents_are_valid(role: str, table: list[Route]) -> None:
    document = openapi.document(role, table)

    validate(document)
    assert document["paths"]


@pytest.mark.parametrize("version", [None, "1.0"])
def test_model_documents_are_valid(version: str | None) -> None:
    document = openapi.model_document("m", version)
    suffix = f"/{version}" if version else ""

    validate(document)
    assert list(document["paths"]) == [f"/predictions/m{suffix}", f"/explanations/m{suffix}"]
    assert document["info"]["version"] == "1.0.0"


def test_what_is_described_exists() -> None:
    router = Router(EVERYTHING)
    for method, path in operations(openapi.document("inference", EVERYTHING)):
        example = re.sub(r"\{\w+\}", "x", path)
        assert router.match(method.upper(), example).route.operation


def test_every_operation_is_used() -> None:
    assert {route.operation for route in EVERYTHING} - {""} == {*OPERATIONS, *V2_OPERATIONS}


def test_tokens_are_declared() -> None:
    found = operations(openapi.document("management", TABLES["management"]))

    assert found["get", "/models"]["security"] == [{"token": []}]
    assert "security" not in found["get", "/token"]
    names = [each["name"] for each in found["put", "/models/{model}/{version}"]["parameters"]]
    assert names[:3] == ["model", "version", "min_worker"]
