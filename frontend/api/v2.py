"""The routes of the Open Inference Protocol (V2): health, metadata, infer, and the model index."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from aiohttp import web

from marserve import __version__
from marserve.archiver.tensor_marks import LAYOUT, MARK
from marserve.frontend.api import http, inference
from marserve.frontend.api.exchange import Exchange
from marserve.frontend.api.routing import Route
from marserve.frontend.errors import BadRequest, InternalError, ServeError
from marserve.frontend.model import Model
from marserve.frontend.types import Chunk, ChunkStream, InferenceRequest
from marserve.frontend.v2 import messages, rows
from marserve.frontend.v2.tensors import Tensor
from marserve.worker.wire import Buffer, Part

KIND = "inference"
HEADER_LENGTH = "Inference-Header-Content-Length"
_GET, _POST = frozenset({"GET", "HEAD"}), frozenset({"POST"})
_LONG_BYTES = 1 << 10  # a shorter answer is not worth compressing


class NotOffered(ServeError):
    """Part of the protocol, but not of this server."""

    status = 501
    type = "NotImplementedException"


class ModelFailed(ServeError):
    """The model's own failure, with its own status."""

    def __init__(self, chunk: Chunk, where: str = "") -> None:
        text = chunk.failure.message if chunk.failure is not None else "the model sent no tensors"
        super().__init__(where + text)
        self.status = chunk.status


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
    if exchange.services.config.service_envelope:
        return await inference.predict_v1(exchange)
    model = exchange.services.registry.route(exchange.model_name, exchange.version)
    body = await exchange.read_body()
    asked = messages.parse(body, exchange.request.headers.get(HEADER_LENGTH))
    by_row = _by_row(model, exchange.services.config.default_service_handler)
    if by_row:
        named_text = by_row == "transformer_handler"
        outputs = await _ask_rows(exchange, model, rows.split(asked.inputs, named_text), asked)
    else:
        outputs = await _ask_tensors(exchange, model, asked)
    answer, json_size = messages.render(asked, model.name, model.version, outputs)
    headers = {"Content-Type": http.JSON_TYPE}
    if json_size is not None:
        headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(json_size)}
    response = exchange.response(Chunk(answer, headers=headers))
    if len(answer) > _LONG_BYTES:
        response.enable_compression()  # if the client accepts it
    return response


def _by_row(model: Model, default_handler: str | None) -> str:
    """The built-in handler of a model if it takes one thing a request, else nothing."""
    archive = model.archive
    handler = model.settings.handler or archive.config.use_handler
    handler = handler or archive.manifest.model.handler or default_handler or ""
    name = handler.partition(":")[0].rpartition("/")[2].removesuffix(".py")
    own = (archive.directory / f"{name}.py").is_file()
    return name if name in rows.BY_ROW and not own else ""


async def _ask_tensors(exchange: Exchange, model: Model, asked: messages.Infer) -> list[Tensor]:
    parts, bodies = [], []
    for each in asked.inputs:
        shape = ",".join(map(str, each.shape))
        parts.append(Part(each.name, len(each.raw), f"{MARK}{each.datatype} {shape}"))
        bodies.append(each.raw)
    [chunk] = await _ask(exchange, model, [(parts, bodies)], asked)
    layout = chunk.headers.get(LAYOUT)
    if layout is None:
        raise InternalError("the model's handler sent no tensors")
    outputs, at, view = [], 0, memoryview(chunk.body)
    for name, datatype, shape, size in json.loads(layout):
        outputs.append(Tensor(name, datatype, tuple(shape), view[at : at + size]))
        at += size
    return outputs


async def _ask_rows(
    exchange: Exchange, model: Model, requests: list[rows.Row], asked: messages.Infer
) -> list[Tensor]:
    """Asks for so many rows at a time that they leave room in the queue."""
    settings = model.settings
    most = settings.batch_size * max(1, model.pool.ready)
    most = max(1, min(most, settings.job_queue_size // 2))
    bodies: list[Buffer] = []
    for begin in range(0, len(requests), most):
        chunks = await _ask(exchange, model, requests[begin : begin + most], asked, begin)
        bodies += [chunk.body for chunk in chunks]
    return rows.gather(bodies)


async def _ask(
    exchange: Exchange,
    model: Model,
    contents: list[rows.Row],
    asked: messages.Infer,
    first_row: int | None = None,
) -> list[Chunk]:
    """Sends requests to a model together; returns their answers, or raises the first failure."""
    sent = http.decode_headers(exchange.request.raw_headers)
    headers = {**sent, "explain": "False", "V2-Parameters": json.dumps(asked.parameters)}
    timeout_s = _timeout(asked) or http.parse_timeout(
        exchange.request.headers.get(http.TIMEOUT_HEADER)
    )
    pinned = exchange.version is not None
    streams, requests = [], []
    try:
        for number, (parts, bodies) in enumerate(contents):
            id = exchange.id if not number and not first_row else http.new_request_id()
            stream = ChunkStream()
            request = InferenceRequest(
                id, "predict", headers, parts, bodies, stream, timeout_s, pinned
            )
            model.submit(request)
            requests.append(request)
            streams.append(stream)
        chunks = []
        for number, stream in enumerate(streams):
            where = "" if first_row is None else f"row {first_row + number}: "
            chunks.append(_whole(await anext(stream), where))
        return chunks
    finally:
        for request in requests:
            if not request.answered:
                request.cancel()


def _whole(chunk: Chunk, where: str) -> Chunk:
    if chunk.failure is not None or not 200 <= chunk.status < 300:
        raise ModelFailed(chunk, where)
    if not chunk.last:
        raise NotOffered("the model answers in pieces, which V2 infer over HTTP cannot carry")
    return chunk


def _timeout(asked: messages.Infer) -> float | None:
    """The parameter ``timeout``, microseconds, in seconds."""
    value = asked.parameters.get("timeout", 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadRequest('parameter "timeout": expected a whole number of microseconds')
    return value / 1e6 or None
