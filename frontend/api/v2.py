"""The routes of the Open Inference Protocol (V2): health, metadata, statistics, infer."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from marserve.frontend.api import http, inference, v2_generate, v2_repository, v2_settings
from marserve.frontend.api.exchange import Exchange
from marserve.frontend.api.routing import Route
from marserve.frontend.api.v2_calls import BINARY_TYPE, HEADER_LENGTH, call_of, plan_for, routed
from marserve.frontend.errors import ServeError
from marserve.frontend.types import Chunk
from marserve.frontend.v2 import inference as tensors
from marserve.frontend.v2 import messages, metadata, statistics
from marserve.frontend.v2.shared_memory import Regions

KIND = "inference"
_GET, _POST = frozenset({"GET", "HEAD"}), frozenset({"POST"})
_LONG_BYTES = 1 << 10  # a shorter answer is not worth compressing


def routes() -> list[Route]:
    """Returns the table of V2; ``/v2/.../explain`` is in that of inference."""
    table = [
        Route("/v2", server_metadata, _GET, operation="v2_server"),
        Route("/v2/health/live", inference.live, _GET, operation="v2_live"),
        Route("/v2/health/ready", inference.ready, _GET, operation="v2_ready"),
        Route("/v2/models/stats", model_statistics, _GET, KIND, "v2_all_stats"),
        *v2_settings.routes(),
        *v2_repository.routes(),
    ]
    for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        table += [
            Route(path, model_metadata, _GET, KIND, "v2_model"),
            Route(path + "/ready", model_ready, _GET, KIND, "v2_model_ready"),
            Route(path + "/config", model_config, _GET, KIND, "v2_config"),
            Route(path + "/stats", model_statistics, _GET, KIND, "v2_stats"),
            Route(path + "/infer", infer, _POST, KIND, "v2_infer"),
            Route(path + "/infer_stream", v2_generate.stream, _POST, KIND, "v2_infer_stream"),
            Route(path + "/generate", v2_generate.once, _POST, KIND, "v2_generate"),
            Route(path + "/generate_stream", v2_generate.stream, _POST, KIND, "v2_generate_stream"),
        ]
    return table


def refuses(path: str) -> bool:
    """Tells whether errors on this path have the form of V2."""
    return path.rstrip("/") == "/v2" or path.startswith("/v2/")


def refusal(error: ServeError) -> Chunk:
    """Returns an error as V2 writes it, ``{"error": text}``."""
    headers = {**error.chunk().headers, "Content-Type": http.JSON_TYPE}
    return Chunk(http.json_body({"error": error.message}), error.status, headers=headers)


async def server_metadata(exchange: Exchange) -> web.StreamResponse:
    """``/v2``."""
    return exchange.json(metadata.server_metadata(exchange.services.config))


async def model_metadata(exchange: Exchange) -> web.StreamResponse:
    """``/v2/models/{model}[/versions/{version}]``."""
    registry = exchange.services.registry
    return exchange.json(metadata.model_metadata(registry, exchange.model_name, exchange.version))


async def model_ready(exchange: Exchange) -> web.StreamResponse:
    """``.../ready``: 503 while no worker of the model can answer."""
    model = exchange.services.registry.resolve(exchange.model_name, exchange.version)
    fit = metadata.is_ready(model)
    return exchange.json({"name": model.name, "ready": fit}, 200 if fit else 503)


async def model_config(exchange: Exchange) -> web.StreamResponse:
    """``.../config``: what is in force, in Triton's words."""
    model = exchange.services.registry.resolve(exchange.model_name, exchange.version)
    return exchange.json(metadata.model_config(model))


async def model_statistics(exchange: Exchange) -> web.StreamResponse:
    """``.../stats``, and ``/v2/models/stats`` for all."""
    name = exchange.model_name if "model" in exchange.parameters else None
    found: dict[str, Any] = statistics.model_statistics(
        exchange.services.registry, name, exchange.version
    )
    return exchange.json(found)


async def infer(exchange: Exchange) -> web.StreamResponse:
    """``.../infer``: decoded here, unless ``service_envelope`` is set: then by the envelope."""
    services, sent = exchange.services, exchange.request.headers
    if services.config.service_envelope:
        return await inference.predict_v1(exchange)
    model = routed(exchange)
    regions = services.v2.regions
    signature = plan_for(exchange, model).signature
    body = await exchange.read_body()
    asked = messages.parse(body, sent.get(HEADER_LENGTH), signature, regions)
    answer = await tensors.infer(services, model, asked, call_of(exchange))
    chunk = rendered(asked, answer, regions)
    chunk.body, chunk.tail = b"".join((chunk.body, *chunk.tail)), ()
    response = exchange.response(chunk)
    if len(chunk.body) > _LONG_BYTES:
        response.enable_compression()  # if the client accepts it
    return response


def rendered(asked: messages.Infer, answer: messages.Answer, regions: Regions) -> Chunk:
    """Returns an answer as HTTP carries it: JSON, and its binary tensors as ``tail``.

    Raises:
        BadRequest: If JSON has no form for an output, or it is larger than its shared memory.
    """
    head, raws = messages.render(asked, answer, regions)
    headers = {**answer.headers, "Content-Type": http.JSON_TYPE}
    if raws:
        headers["Content-Type"] = BINARY_TYPE
        headers[HEADER_LENGTH] = str(len(head))
    return Chunk(head, answer.status, headers=headers, tail=raws)
