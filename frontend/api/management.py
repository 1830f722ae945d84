"""The management surface: models, versions, workers, tokens."""

from __future__ import annotations

import logging

import msgspec
from aiohttp import web

from marserve.frontend.api import inference, openapi
from marserve.frontend.api.description import describe_model
from marserve.frontend.api.exchange import Exchange
from marserve.frontend.api.management_requests import (
    parse_page,
    parse_register,
    parse_scale,
    parse_traffic,
    render_page,
)
from marserve.frontend.api.routing import Answer, Route
from marserve.frontend.errors import MethodNotAllowed
from marserve.frontend.types import Chunk

logger = logging.getLogger(__name__)

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
    registry = exchange.services.registry
    page = render_page([(m.name, m.url) for m in registry.default_models()], begin, limit)
    for entry in page["models"]:
        if rules := registry.traffic(entry["modelName"]).describe_rules():
            entry["traffic"] = rules
    return exchange.json(page)


async def register(exchange: Exchange) -> web.StreamResponse:
    """Registers a model from the model store or an allowed URL."""
    body = await exchange.read_body()
    kind = exchange.request.headers.get("Content-Type")
    wanted, unknown = parse_register(exchange.query_pairs, kind, body)
    if unknown:
        logger.warning("register: parameters without effect: %r", unknown)
    done = await exchange.finish(exchange.services.registry.register(wanted))
    name, version = done.model.name, done.model.version
    if done.workers and not wanted.synchronous:
        return exchange.status("Processing worker updates...", 202)
    text = f'Model "{name}" Version: {version} registered with {done.workers} initial workers'
    if not done.workers:
        text += ". Use scale workers API to add workers for the model."
    return exchange.status(text)


async def describe(exchange: Exchange) -> web.StreamResponse:
    """Describes the default version, a named one, or ``all``."""
    registry = exchange.services.registry
    name, version = exchange.model_name, exchange.version
    every = version == "all"
    models = registry.versions(name) if every else [registry.resolve(name, version)]
    rules = registry.traffic(name)
    described = [describe_model(m) | rules.describe_share(m.version) for m in models]
    if exchange.query.get("customized", "").lower() == "true":
        for model, entry in zip(models, described, strict=True):
            entry["customizedMetadata"] = _object(
                await inference.describe_metadata(model, exchange)
            )
    return exchange.json(described)


async def scale(exchange: Exchange) -> web.StreamResponse:
    """Sets the least and the greatest number of workers."""
    wanted, unknown = parse_scale(exchange.query_pairs)
    if unknown:
        logger.warning("scale: parameters without effect: %r", unknown)
    name, version = exchange.model_name, exchange.version or wanted.version
    work = exchange.services.registry.scale(
        name, version, wanted.min_workers, wanted.max_workers, wanted.synchronous
    )
    complete = await exchange.finish(work)
    if not wanted.synchronous:
        return exchange.status("Processing worker updates...", 202)
    if not complete:
        return exchange.status("Workers scaling in progress...", 206)
    which = f", version: {version}" if version else ""
    return exchange.status(f"Workers scaled to {wanted.min_workers} for model: {name}{which}")


async def set_default(exchange: Exchange) -> web.StreamResponse:
    """Makes a version the one that requests without a version get."""
    name, version = exchange.model_name, exchange.parameters["version"]
    exchange.services.registry.set_default(name, version)
    return exchange.status(
        f'Default version successfully updated for model "{name}" to "{version}"'
    )


async def traffic(exchange: Exchange) -> web.StreamResponse:
    """Shows how the requests that name no version are shared between the versions."""
    name = exchange.model_name
    versions = exchange.services.registry.traffic(name)
    rules = {"modelName": name, "default": versions.default, **versions.describe_rules()}
    return exchange.json(rules)


async def direct(exchange: Exchange) -> web.StreamResponse:
    """Shares the requests that name no version between versions, or copies them to one."""
    weights, shadow = parse_traffic(await exchange.read_body())
    services = exchange.services
    services.registry.traffic(exchange.model_name).direct(weights, shadow, services.telemetry)
    return await traffic(exchange)


async def unregister(exchange: Exchange) -> web.StreamResponse:
    """Ends a version's workers and forgets it."""
    name = exchange.model_name
    await exchange.finish(exchange.services.registry.unregister(name, exchange.version))
    return exchange.status(f'Model "{name}" unregistered')


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
    raise MethodNotAllowed(
        "Registering and unregistering models is switched off. Start the server with"
        " --enable-model-api, or set enable_model_api=true in config.properties."
    )


def _object(document: bytes) -> dict[str, object]:
    """A handler's description if it is a JSON object, else an empty one."""
    try:
        value = msgspec.json.decode(document)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
