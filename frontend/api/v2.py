"""The routes of the Open Inference Protocol (V2): health, metadata, infer, and the model index."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from marserve import __version__
from marserve.frontend.api import http, inference
from marserve.frontend.api.exchange import Exchange
from marserve.frontend.api.routing import Route
from marserve.frontend.errors import BadRequest, ServeError
from marserve.frontend.types import Chunk
from marserve.frontend.v2 import inference as tensors
from marserve.frontend.v2 import messages
from marserve.frontend.v2.answers import NotOffered

KIND = "inference"
HEADER_LENGTH = "Inference-Header-Content-Length"
_GET, _POST = frozenset({"GET", "HEAD"}), frozenset({"POST"})
_LONG_BYTES = 1 << 10  # a shorter answer is not worth compressing


def routes() -> list[Route]:
    """Returns the table of V2; ``/v2/.../explain`` is in that of inference."""
    model, version = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"
    table = [
        Route("/v2", server_metadata, _GET, operation="v2_server"),
        Route("/v2/health/live", inference.live, _GET, operation="v2_live"),
        Route("/v2/health/ready", inference.ready, _GET, operation="v2_ready"),
        Route("/v2/repository/index", index, _POST, KIND, "v2_index"),
    ]
    for change in ("load", "unload"):
        path = "/v2/repository/models/{model}/" + change
        table.append(Route(path, not_offered, _POST, KIND, "v2_absent"))
    for path in (model, version):
        table += [
            Route(path, model_metadata, _GET, KIND, "v2_model"),
            Route(path + "/ready", model_ready, _GET, KIND, "v2_model_ready"),
            Route(path + "/infer", infer, _POST, KIND, "v2_infer"),
        ]
        for absent, methods in (("config", _GET), ("stats", _GET), ("generate", _POST)):
            table.append(Route(f"{path}/{absent}", not_offered, methods, KIND, "v2_absent"))
        table.append(Route(path + "/generate_stream", not_offered, _POST, KIND, "v2_absent"))
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
    extensions = ["binary_tensor_data", "model_repository"]
    return exchange.json({"name": "marserve", "version": __version__, "extensions": extensions})


async def model_metadata(exchange: Exchange) -> web.StreamResponse:
    """``/v2/models/{model}[/versions/{version}]``: nothing is told of tensors but what is sure."""
    registry = exchange.services.registry
    model = registry.resolve(exchange.model_name, exchange.version)
    return exchange.json(
        {
            "name": model.name,
            "versions": sorted(each.version for each in registry.versions(model.name)),
            "platform": "pytorch_mar",
            "inputs": [],
            "outputs": [],
        }
    )


async def model_ready(exchange: Exchange) -> web.StreamResponse:
    """``.../ready``: 503 while no worker of the model can answer."""
    model = exchange.services.registry.resolve(exchange.model_name, exchange.version)
    fit = model.scaler.servable and not model.draining
    return exchange.json({"name": model.name, "ready": fit}, 200 if fit else 503)


async def index(exchange: Exchange) -> web.StreamResponse:
    """The models that are registered, all versions."""
    body = await exchange.read_body()
    only_ready = False
    if body:
        try:
            asked = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise BadRequest(f'expected {{"ready": true}} or no body: {error}') from None
        only_ready = asked.get("ready") is True
    registry = exchange.services.registry
    found = []
    for each in registry.default_models():
        for model in registry.versions(each.name):
            fit = model.scaler.servable and not model.draining
            if fit or not only_ready:
                state = "READY" if fit else "UNAVAILABLE"
                found.append({"name": model.name, "version": model.version, "state": state})
    return exchange.json(found)


async def not_offered(exchange: Exchange) -> web.StreamResponse:
    """What the protocol's extensions have and this server has not."""
    raise NotOffered(
        f"{exchange.path} is not offered by this server; models are registered and described"
        " through the management API"
    )


async def infer(exchange: Exchange) -> web.StreamResponse:
    """``.../infer``: decoded here, unless ``service_envelope`` is set: then by the envelope."""
    services, sent = exchange.services, exchange.request.headers
    if services.config.service_envelope:
        return await inference.predict_v1(exchange)
    model = services.registry.route(exchange.model_name, exchange.version)
    asked = messages.parse(await exchange.read_body(), sent.get(HEADER_LENGTH))
    answer = await tensors.infer(services, model, asked, call_of(exchange))
    body, json_size = messages.render(asked, answer)
    headers = {**answer.headers, "Content-Type": http.JSON_TYPE}
    if json_size is not None:
        headers["Content-Type"] = "application/octet-stream"
        headers[HEADER_LENGTH] = str(json_size)
    response = exchange.response(Chunk(body, answer.status, headers=headers))
    if len(body) > _LONG_BYTES:
        response.enable_compression()  # if the client accepts it
    return response


def call_of(exchange: Exchange, streams: bool = False) -> tensors.Call:
    """Returns what surrounds a request."""
    request = exchange.request
    return tensors.Call(
        http.decode_headers(request.raw_headers),
        exchange.id,
        http.parse_timeout(request.headers.get(http.TIMEOUT_HEADER)),
        exchange.version is not None,
        streams,
    )
