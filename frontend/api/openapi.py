"""The API's own description, as OpenAPI 3.0 documents: one for each surface, one for each model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from marserve import __version__
from marserve.frontend.api.openapi_operations import ERROR, OPERATIONS, PARAMETERS
from marserve.frontend.api.openapi_v2 import V2_OPERATIONS

if TYPE_CHECKING:
    from aiohttp import web

    from marserve.frontend.api.exchange import Exchange
    from marserve.frontend.api.routing import Route

OPENAPI = "3.0.1"
_TITLES = {
    "inference": "marserve inference API",
    "management": "marserve management API",
    "metrics": "marserve metrics API",
}
_PLAIN_METHODS = ("get", "post", "put", "delete")

Document = dict[str, Any]


def document(role: str, routes: Iterable[Route]) -> Document:
    """Returns the description of all routes of one address.

    Args:
        role: ``inference``, ``management`` or ``metrics``.
        routes: Those with an ``operation`` are described.
    """
    paths: Document = {}
    for route in routes:
        if route.operation:
            path = re.sub(r"/\{\w+\*\}$", "", route.pattern)
            _add(paths.setdefault(path, {}), route, path)
    return _document(_TITLES[role], __version__, paths)


def model_document(name: str, version: str | None) -> Document:
    """Returns the description of one model's predictions and explanations."""
    suffix = f"/{version}" if version else ""
    paths: Document = {}
    for kind in ("predict", "explain"):
        noun = {"predict": "predictions", "explain": "explanations"}[kind]
        operation = OPERATIONS[kind]("post", f"/{noun}/{name}{suffix}")
        paths[f"/{noun}/{name}{suffix}"] = {"post": operation}
    return _document(f"RESTful API for model {name}", "1.0.0", paths)


async def describe_surface(exchange: Exchange) -> web.StreamResponse:
    """``OPTIONS /`` and ``/api-description``."""
    return exchange.json(exchange.openapi)


async def describe_model(exchange: Exchange) -> web.StreamResponse:
    """``OPTIONS`` on a model; it must exist."""
    model = exchange.services.registry.resolve(exchange.model_name, exchange.version)
    return exchange.json(model_document(model.name, exchange.version))


def _document(title: str, version: str, paths: Document) -> Document:
    return {
        "openapi": OPENAPI,
        "info": {
            "title": title,
            "description": "Serves PyTorch models packed as archives.",
            "version": version,
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _add(item: Document, route: Route, path: str) -> None:
    methods = [m.lower() for m in sorted(route.methods) if m.lower() in _PLAIN_METHODS] or [
        "get" if route.operation in ("ping", "token") else "post"
    ]
    for method in methods:
        operation = (OPERATIONS.get(route.operation) or V2_OPERATIONS[route.operation])(
            method, path
        )
        names = re.findall(r"\{(\w+)\}", path)
        own = [PARAMETERS[name] for name in names]
        if own or operation.get("parameters"):
            operation["parameters"] = own + operation.get("parameters", [])
        if route.token is not None:
            operation["security"] = [{"token": []}]
        item[method] = operation
