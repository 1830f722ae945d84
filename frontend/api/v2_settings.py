"""The routes of V2's settings: logging, traces, and shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marserve.frontend.api.routing import Route
from marserve.frontend.errors import BadRequest
from marserve.frontend.types import Chunk
from marserve.frontend.v2.generate import read_object

if TYPE_CHECKING:
    from aiohttp import web

    from marserve.frontend.api.exchange import Exchange
    from marserve.frontend.v2.shared_memory import Regions

_GET, _POST = frozenset({"GET", "HEAD"}), frozenset({"POST"})
_INFERENCE, _MANAGEMENT = "inference", "management"


def routes() -> list[Route]:
    """Returns the table; what changes the server needs the key of management."""
    trace, own = "/v2/trace/setting", "/v2/models/{model}/trace/setting"
    table = [
        Route("/v2/logging", show_logs, _GET, _INFERENCE, "v2_logging"),
        Route("/v2/logging", change_logs, _POST, _MANAGEMENT, "v2_change_logging"),
    ]
    for path in (trace, own):
        table += [
            Route(path, show_traces, _GET, _INFERENCE, "v2_trace"),
            Route(path, change_traces, _POST, _MANAGEMENT, "v2_change_trace"),
        ]
    table += _shared("/v2/systemsharedmemory", (status, register, unregister), "v2_shared")
    return table + _shared("/v2/cudasharedmemory", (no_cuda, no_cuda, no_cuda), "v2_cuda")


def _shared(base: str, answers: tuple[Any, Any, Any], operation: str) -> list[Route]:
    region, (shows, adds, removes) = base + "/region/{region}", answers
    kind, reading = _INFERENCE, frozenset({"GET"})
    return [
        Route(base + "/status", shows, reading, kind, operation + "_status"),
        Route(region + "/status", shows, reading, kind, operation + "_status"),
        Route(region + "/register", adds, _POST, kind, operation + "_register"),
        Route(base + "/unregister", removes, _POST, kind, operation + "_unregister"),
        Route(region + "/unregister", removes, _POST, kind, operation + "_unregister"),
    ]


async def show_logs(exchange: Exchange) -> web.StreamResponse:
    """``GET /v2/logging``."""
    return exchange.json(exchange.services.v2.logs.values())


async def change_logs(exchange: Exchange) -> web.StreamResponse:
    """``POST /v2/logging``."""
    given = await _body(exchange)
    return exchange.json(exchange.services.v2.logs.change(given))


async def show_traces(exchange: Exchange) -> web.StreamResponse:
    """``GET .../trace/setting``."""
    return exchange.json(exchange.services.v2.traces.values(_traced(exchange)))


async def change_traces(exchange: Exchange) -> web.StreamResponse:
    """``POST .../trace/setting``."""
    model, given = _traced(exchange), await _body(exchange)
    return exchange.json(exchange.services.v2.traces.change(given, model))


async def status(exchange: Exchange) -> web.StreamResponse:
    """``.../status``: a region, or all."""
    return exchange.json(_regions(exchange).status(exchange.parameters.get("region")))


async def register(exchange: Exchange) -> web.StreamResponse:
    """``.../register``."""
    given = await _body(exchange)
    key, offset, size = given.get("key"), given.get("offset", 0), given.get("byte_size")
    if not isinstance(key, str) or type(offset) is not int or type(size) is not int:
        raise BadRequest('expected {"key": TEXT, "offset": BYTES, "byte_size": BYTES}')
    _regions(exchange).register(exchange.parameters["region"], key, offset, size)
    return exchange.response(Chunk())


async def unregister(exchange: Exchange) -> web.StreamResponse:
    """``.../unregister``: a region, or all."""
    _regions(exchange).unregister(exchange.parameters.get("region"))
    return exchange.response(Chunk())


async def no_cuda(exchange: Exchange) -> web.StreamResponse:
    """Memory of devices is the workers' alone."""
    raise BadRequest(
        "CUDA shared memory is not offered: the server itself uses no device; use system shared"
        " memory"
    )


def _regions(exchange: Exchange) -> Regions:
    return exchange.services.v2.regions


def _traced(exchange: Exchange) -> str | None:
    """The model of the path, which must be served."""
    if "model" not in exchange.parameters:
        return None
    return exchange.services.registry.resolve(exchange.model_name).name


async def _body(exchange: Exchange) -> dict[str, Any]:
    body = await exchange.read_body()
    return read_object(body) if body else {}
