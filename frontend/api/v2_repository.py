"""The routes of V2's model repository: index, load, unload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marserve.frontend.api.routing import Route
from marserve.frontend.errors import BadRequest
from marserve.frontend.types import Chunk
from marserve.frontend.v2 import repository
from marserve.frontend.v2.generate import read_object

if TYPE_CHECKING:
    from aiohttp import web

    from marserve.frontend.api.exchange import Exchange

_POST = frozenset({"POST"})


def routes() -> list[Route]:
    """Returns the table; what changes models needs the key of management."""
    one = "/v2/repository/models/{model}"
    return [
        Route("/v2/repository/index", index, _POST, "inference", "v2_index"),
        Route(one + "/load", load, _POST, "management", "v2_load"),
        Route(one + "/unload", unload, _POST, "management", "v2_unload"),
    ]


async def index(exchange: Exchange) -> web.StreamResponse:
    """All models, with their states."""
    asked = await _body(exchange)
    ready = asked.get("ready", False)
    if not isinstance(ready, bool):
        raise BadRequest("ready: expected true or false")
    return exchange.json(await repository.index(exchange.services.registry, ready))


async def load(exchange: Exchange) -> web.StreamResponse:
    """``.../load``: returns when the model can answer."""
    services, name = exchange.services, exchange.model_name
    parameters = _parameters(await _body(exchange))
    await exchange.finish(repository.load(services.registry, services.config, name, parameters))
    return exchange.response(Chunk())


async def unload(exchange: Exchange) -> web.StreamResponse:
    """``.../unload``: returns when its last answer is given."""
    services, name = exchange.services, exchange.model_name
    parameters = _parameters(await _body(exchange))
    await exchange.finish(repository.unload(services.registry, services.config, name, parameters))
    return exchange.response(Chunk())


async def _body(exchange: Exchange) -> dict[str, Any]:
    body = await exchange.read_body()
    return read_object(body) if body else {}


def _parameters(asked: dict[str, Any]) -> dict[str, Any]:
    parameters = asked.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise BadRequest("parameters: expected an object")
    return parameters
