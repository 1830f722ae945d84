"""The management surface: models, versions, workers, tokens."""

from __future__ import annotations

from aiohttp import web

from marserve.frontend.api import management_calls, openapi
from marserve.frontend.api.exchange import Exchange
from marserve.frontend.api.management_requests import (
    parse_page,
    parse_register,
    parse_scale,
    parse_traffic,
)
from marserve.frontend.api.routing import Answer, Route
from marserve.frontend.types import Chunk

KIND = "management"
_GET, _POST, _PUT = frozenset({"GET", "HEAD"}), frozenset({"POST"}), frozenset({"PUT"})
_DELETE, _OPTIONS = frozenset({"DELETE"}), frozenset({"OPTIONS"})


def routes(model_api: bool) -> list[Route]:
    """Returns the table of the management surface.

    Args:
        model_api: Whether models may be registered and unregistered.
    """
    model, version = "/models/{model}", "/models/{model}/{version}"
    add, remove = (register, unregister) if model_api else (_off, _off)

    def row(pattern: str, answer: Answer, methods: frozenset[str], operation: str = "") -> Route:
        return Route(pattern, answer, methods, KIND, operation)

    return [
        row("/models", list_models, _GET, "list_models"),
        row("/models", add, _POST, "register"),
        row(model, describe, _GET, "describe"),
        row(model + "/traffic", traffic, _GET, "traffic"),
        row(model + "/traffic", direct, _PUT, "direct"),
        row(version, describe, _GET, "describe"),
        row(model, scale, _PUT, "scale"),
        row(version, scale, _PUT, "scale"),
        row(model + "/{version}/set-default", set_default, _PUT, "set_default"),
        row(model, remove, _DELETE, "unregister"),
        row(version, remove, _DELETE, "unregister"),
        row(model, openapi.describe_model, _OPTIONS),
        row("/v1/models/{model}", ready, _GET, "ready_v1"),
        Route("/token", token, operation="token"),
    ]


async def list_models(exchange: Exchange) -> web.StreamResponse:
    """Lists the default versions, page by page, and the traffic rules of those that have some."""
    limit, begin = parse_page(exchange.query)
    return exchange.json(management_calls.page(exchange.services.registry, begin, limit))


async def register(exchange: Exchange) -> web.StreamResponse:
    """Registers a model from the model store or an allowed URL."""
    body = await exchange.read_body()
    kind = exchange.request.headers.get("Content-Type")
    wanted, unknown = parse_register(exchange.query_pairs, kind, body)
    registry = exchange.services.registry
    return exchange.status(*await management_calls.register(registry, wanted, unknown))


async def describe(exchange: Exchange) -> web.StreamResponse:
    """Describes the default version, a named one, or ``all``."""
    customized = exchange.query.get("customized", "").lower() == "true"
    name, version, registry = exchange.model_name, exchange.version, exchange.services.registry
    return exchange.json(
        await management_calls.describe(registry, name, version, customized, exchange.id)
    )


async def scale(exchange: Exchange) -> web.StreamResponse:
    """Sets the least and the greatest number of workers."""
    wanted, unknown = parse_scale(exchange.query_pairs)
    name, version = exchange.model_name, exchange.version or wanted.version
    registry = exchange.services.registry
    return exchange.status(*await management_calls.scale(registry, name, version, wanted, unknown))


async def set_default(exchange: Exchange) -> web.StreamResponse:
    """Makes a version the one that requests without a version get."""
    name, version = exchange.model_name, exchange.parameters["version"]
    registry = exchange.services.registry
    return exchange.status(*await management_calls.set_default(registry, name, version))


async def traffic(exchange: Exchange) -> web.StreamResponse:
    """Shows how the requests that name no version are shared between the versions."""
    name = exchange.model_name
    versions = exchange.services.registry.traffic(name)
    rules = {"modelName": name, "default": versions.default, **versions.describe_rules()}
    return exchange.json(rules)


async def direct(exchange: Exchange) -> web.StreamResponse:
    """Shares the requests that name no version between versions, or copies them to one."""
    weights, shadow = parse_traffic(await exchange.read_body())
    registry = exchange.services.registry
    registry.direct(exchange.model_name, weights, shadow)
    await registry.snapshots.save()
    return await traffic(exchange)


async def unregister(exchange: Exchange) -> web.StreamResponse:
    """Ends a version's workers and forgets it."""
    name, registry = exchange.model_name, exchange.services.registry
    return exchange.status(*await management_calls.unregister(registry, name, exchange.version))


async def ready(exchange: Exchange) -> web.StreamResponse:
    """KServe's readiness of one model."""
    model = exchange.services.registry.resolve(exchange.model_name)
    return exchange.json(
        {"name": model.name, "ready": model.pool.ready > 0 or model.scaler.dormant}
    )


async def token(exchange: Exchange) -> web.StreamResponse:
    """Renews a token; the new key is in the key file alone."""
    kind = exchange.query.get("type", "")
    exchange.services.auth.renew(kind, exchange.request.headers.get("Authorization"))
    return exchange.response(Chunk(b"\n"))


async def _off(exchange: Exchange) -> web.StreamResponse:
    raise management_calls.switched_off()
