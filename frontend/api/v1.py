"""KServe's protocol V1: list, readiness, predict, explain; built-in handlers need no envelope."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from marserve.frontend.api import inference
from marserve.frontend.api.routing import Route
from marserve.frontend.api.v2_calls import call_of, plan_for, routed
from marserve.frontend.v2.inference import ask_each
from marserve.frontend.v2.messages import Infer
from marserve.worker.wire import Part

if TYPE_CHECKING:
    from aiohttp import web

    from marserve.frontend.api.exchange import Exchange
    from marserve.frontend.v2.rows import Row
    from marserve.worker.wire import Buffer

KIND = "inference"
_GET = frozenset({"GET", "HEAD"})


def routes() -> list[Route]:
    """Returns the table; readiness stands at the management address, too."""
    return [
        Route("/v1/models", models, _GET, KIND, "models_v1"),
        Route("/v1/models/{model}:predict", predict, token=KIND, operation="predict_v1"),
        Route("/v1/models/{model}:explain", explain, token=KIND, operation="explain_v1"),
        Route("/v1/models/{model}", ready, _GET, KIND, "ready_v1"),
    ]


async def models(exchange: Exchange) -> web.StreamResponse:
    """``/v1/models``: the names of all models."""
    found = exchange.services.registry.default_models()
    return exchange.json({"models": [model.name for model in found]})


async def ready(exchange: Exchange) -> web.StreamResponse:
    """``/v1/models/{model}``."""
    model = exchange.services.registry.resolve(exchange.model_name)
    fit = model.scaler.servable and not model.draining
    return exchange.json({"name": model.name, "ready": fit})


async def predict(exchange: Exchange) -> web.StreamResponse:
    """``:predict``: your own handler, or its envelope, gets the body as it is."""
    return await _ask(exchange, "predict", "predictions")


async def explain(exchange: Exchange) -> web.StreamResponse:
    """``:explain``, likewise."""
    return await _ask(exchange, "explain", "explanations")


async def _ask(exchange: Exchange, command: str, key: str) -> web.StreamResponse:
    services, model = exchange.services, routed(exchange)
    plan = plan_for(exchange, model)
    instances = None
    if plan.by_row and not services.config.service_envelope:
        instances = _instances(await exchange.read_body())
    if instances is None:
        whole = inference.predict_v1 if command == "predict" else inference.explain_v1
        return await whole(exchange)
    call = replace(call_of(exchange), command=command)
    rows = [_row(each) for each in instances]
    bodies = await ask_each(services, model, rows, Infer([], [], {}, ""), call)
    return exchange.json({key: [_value(body) for body in bodies]})


def _instances(body: Buffer) -> list[Any] | None:
    """The list under ``instances``; None if the body is anything else."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    instances = value.get("instances") if isinstance(value, dict) else None
    return instances if isinstance(instances, list) and instances else None


def _row(instance: Any) -> Row:
    data = msgspec.json.encode(instance)
    return [Part("body", len(data), "application/json")], [data]


def _value(body: Buffer) -> Any:
    """What a handler answered: its JSON, or its text."""
    try:
        return json.loads(bytes(body))
    except ValueError:
        return bytes(body).decode(errors="replace")
