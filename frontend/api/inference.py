"""The inference surface: predictions, explanations, health."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiohttp import web

from marserve.frontend.api import http, openapi
from marserve.frontend.api.exchange import SLICE_BYTES, Exchange, checked_name
from marserve.frontend.api.routing import Route
from marserve.frontend.errors import BadRequest, ServiceUnavailable
from marserve.frontend.types import Chunk, ChunkStream, InferenceRequest

if TYPE_CHECKING:
    from marserve.frontend.model import Model

logger = logging.getLogger(__name__)

KIND = "inference"
_GET = frozenset({"GET", "HEAD"})


def routes() -> list[Route]:
    """Returns the table of the inference surface; OPTIONS on a model describes it."""
    options = frozenset({"OPTIONS"})
    return [
        Route("/predictions/{model}", openapi.describe_model, options, KIND),
        Route("/predictions/{model}/{version}", openapi.describe_model, options, KIND),
        Route("/predictions/{model}", predict, token=KIND, operation="predict"),
        Route("/predictions/{model}/{version}/{rest*}", predict, token=KIND, operation="predict"),
        Route("/explanations/{model}", explain, token=KIND, operation="explain"),
        Route("/explanations/{model}/{version}/{rest*}", explain, token=KIND, operation="explain"),
        Route("/ping", ping, token=KIND, operation="ping"),
        Route("/health/live", live, _GET, operation="live"),
        Route("/health/ready", ready, _GET, operation="ready"),
        Route("/invocations", invoke_default, token=KIND, operation="invoke"),
        Route("/models/{model}/invoke", invoke, token=KIND, operation="invoke"),
        Route("/v2/models/{model}/explain", explain_v1, token=KIND, operation="explain_v2"),
        Route("/{model}/predict", invoke, token=KIND),
        Route("/{model}/{version}/predict", invoke, token=KIND),
    ]


async def predict(exchange: Exchange) -> web.StreamResponse:
    """``/predictions/{model}[/{version}[/more]]``."""
    extra = {"explain": "False", "url_path": exchange.parameters.get("rest", "")}
    return await _infer(exchange, exchange.model_name, "predict", extra)


async def explain(exchange: Exchange) -> web.StreamResponse:
    """``/explanations/{model}[/{version}]``."""
    extra = {"explain": "True", "url_path": exchange.parameters.get("rest", "")}
    return await _infer(exchange, exchange.model_name, "explain", extra)


async def predict_v1(exchange: Exchange) -> web.StreamResponse:
    """KServe's predict: the body goes to the handler as it is, an envelope may open it."""
    return await _infer(exchange, exchange.model_name, "predict", {"explain": "False"})


async def explain_v1(exchange: Exchange) -> web.StreamResponse:
    """KServe's explain."""
    return await _infer(exchange, exchange.model_name, "explain", {"explain": "True"})


async def invoke(exchange: Exchange) -> web.StreamResponse:
    """``/models/{model}/invoke`` and the oldest form, ``/{model}[/{version}]/predict``."""
    return await _infer(exchange, exchange.model_name, "predict", {}, query_counts=True)


async def invoke_default(exchange: Exchange) -> web.StreamResponse:
    """``/invocations``: the model named in the query, or the only one named at start, or at all."""
    name = exchange.query.get("model_name")
    if not name:
        models = exchange.services.registry.default_models()
        named = [model for model in models if model.loaded_at_startup]
        only = named if len(named) == 1 else models
        if len(only) != 1:
            raise BadRequest("Parameter model_name is required.")
        name = only[0].name
    return await _infer(exchange, checked_name(name), "predict", {}, query_counts=True)


async def ping(exchange: Exchange) -> web.StreamResponse:
    """Health as TorchServe tells it: 500 when a model has fewer workers than its minimum."""
    healthy = exchange.services.registry.healthy()
    return (
        exchange.json({"status": "Healthy"})
        if healthy
        else exchange.json({"status": "Unhealthy"}, 500)
    )


async def live(exchange: Exchange) -> web.StreamResponse:
    """Liveness: the server answers."""
    return exchange.json({"live": True})


async def ready(exchange: Exchange) -> web.StreamResponse:
    """Readiness: not loading or draining, and every model that wants workers has a live one."""
    registry = exchange.services.registry
    fit = registry.ready()
    body: dict[str, object] = {"ready": fit}
    if registry.draining:
        body["draining"] = True
    if registry.starting:
        body["loading"] = True
    models = registry.default_models()
    lacking = [model.name for model in models if not model.scaler.servable]
    if lacking and exchange.has_key("inference", "management"):
        body["models_without_workers"] = lacking
    elif lacking:
        body["without_workers"] = len(lacking)  # names are not for strangers
    return exchange.json(body, 200 if fit else 503)


async def _infer(
    exchange: Exchange, name: str, command: str, extra: dict[str, str], query_counts: bool = False
) -> web.StreamResponse:
    version = exchange.version
    model = exchange.services.registry.route(name, version)
    body = await exchange.read_body()
    headers = http.decode_headers(exchange.request.raw_headers, exchange.services.auth.enabled)
    headers.update(extra)
    sent = exchange.request.headers
    query = exchange.query_pairs if query_counts else ()
    parts, bodies = http.parse_body(sent.get("Content-Type"), body, query)
    stream = ChunkStream()
    timeout_s = http.parse_timeout(sent.get(http.TIMEOUT_HEADER))
    pinned = version is not None
    request = InferenceRequest(
        exchange.id, command, headers, parts, bodies, stream, timeout_s, pinned
    )
    model.submit(request)
    try:
        first = await anext(stream)
        if first.last:
            if len(first.body) > SLICE_BYTES:
                return await exchange.send_large(first)
            return exchange.response(first)
        return await _stream(exchange, first, stream)
    finally:
        if not request.answered:
            request.cancel()


async def _stream(exchange: Exchange, first: Chunk, rest: ChunkStream) -> web.StreamResponse:
    """Sends an answer piece by piece, one HTTP chunk each; the first decides on the head."""
    response = exchange.stream(first)
    if exchange.request.version >= (1, 1):
        response.enable_chunked_encoding()
    await response.prepare(exchange.request)
    await exchange.write(response, first.body)
    async for chunk in rest:
        if chunk.failure is not None:
            # The status is sent; breaking off is the one way left to say that this is no end.
            logger.warning("request %s: stream broke: %s", exchange.id, chunk.failure.message)
            if exchange.request.transport is not None:
                exchange.request.transport.abort()
            return response
        await exchange.write(response, chunk.body)
    await response.write_eof()
    return response


async def describe_metadata(model: Model, id: str) -> bytes:
    """Asks one worker of a model to describe itself.

    Args:
        model: Which.
        id: Of the request that asks.

    Returns:
        The handler's JSON document.

    Raises:
        ServiceUnavailable: If no worker is there.
    """
    if not (model.pool.ready or model.scaler.dormant):
        raise ServiceUnavailable(
            f'Model "{model.name}" has no worker to serve describe request. '
            "Please use scale workers API to add workers."
        )
    stream = ChunkStream()
    headers = {"describe": "True"}
    request = InferenceRequest(id, "describe", headers, [], [], stream, pinned=True)
    model.submit(request)
    try:
        pieces = [bytes(http.render_body(chunk)) async for chunk in stream]
    except asyncio.CancelledError:
        request.cancel()
        raise
    return b"".join(pieces)
