"""The aiohttp applications, one for each address: dispatch, tokens, errors, access log, limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any

from aiohttp import http_exceptions, web

from marserve.frontend.api import exchange as exchanges
from marserve.frontend.api import http, inference, management, metrics, openapi, v1, v2, workflows
from marserve.frontend.api.exchange import UNTYPED, Exchange, Services, check_declared
from marserve.frontend.api.routing import Route, Router
from marserve.frontend.errors import InternalError, ServeError, TooLarge

__all__ = ["FRONT", "RUNNER_OPTIONS", "Front", "Services", "build_apps"]

logger = logging.getLogger(__name__)

RUNNER_OPTIONS: dict[str, Any] = {
    "access_log": None,  # ours is written below
    "handler_cancellation": True,  # a client that goes away frees its place
    "keepalive_timeout": 75.0,
    "lingering_time": 5.0,
    "max_line_size": 16 << 10,
    "max_field_size": 16 << 10,
}
"""Keyword arguments of ``aiohttp.web.AppRunner`` that the applications rely on."""

_CLIENT_GONE = 499


def build_apps(services: Services) -> dict[str, web.Application]:
    """Builds the applications of the three HTTP surfaces.

    Args:
        services: What the routes work with.

    Returns:
        ``inference``, ``management`` and, unless switched off, ``metrics``. Surfaces with equal
        addresses share one application: the same object stands under each of their names. Run each
        with ``AppRunner(app, **RUNNER_OPTIONS)``.
    """
    logging.getLogger("aiohttp.server").addFilter(_without_traceback)
    config, model_api = services.config, services.config.enable_model_api
    asked = inference.routes() + v1.routes() + v2.routes() + workflows.inference_routes()
    managed = management.routes(model_api) + workflows.management_routes(model_api)
    tables = {
        "inference": (config.inference_address, asked),
        "management": (config.management_address, managed),
    }
    if config.enable_metrics_api:
        tables["metrics"] = (config.metrics_address, metrics.routes())
    addresses: dict[object, list[str]] = {}
    for role, (address, _) in tables.items():
        free_port = address.scheme != "unix" and not address.port  # each gets one of its own
        addresses.setdefault(role if free_port else address, []).append(role)
    apps: dict[str, web.Application] = {}
    for roles in addresses.values():
        table = [route for role in roles for route in tables[role][1]]
        app = _application(services, roles[0], table)
        apps.update(dict.fromkeys(roles, app))
    return apps


def _without_traceback(record: logging.LogRecord) -> bool:
    """Bytes that are no HTTP are the client's mistake: a line in the log, not twenty."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, http_exceptions.HttpProcessingError):
        record.exc_info = None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


def _application(services: Services, role: str, table: list[Route]) -> web.Application:
    front = Front(services, role, table)
    app = web.Application(client_max_size=0)
    everything = r"/{path:[\s\S]*}"  # a dot would leave paths with %0A to aiohttp: without a key
    app.router.add_route("*", everything, front.answer, expect_handler=front.expect)
    app.on_response_prepare.append(_strip)
    app[FRONT] = front
    return app


class Front:
    """Takes every request of one address.

    Args:
        role: Surface that unknown paths belong to; they need its token.
        table: The routes.
    """

    def __init__(self, services: Services, role: str, table: list[Route]) -> None:
        self.services = services
        self._unknown_token = role if role != "metrics" else None
        described = [
            Route("/", openapi.describe_surface, frozenset({"OPTIONS"})),
            Route("/api-description", openapi.describe_surface),
        ]
        self.router = Router(described + table)
        self._document = openapi.document(role, self.router.routes)
        self.constant = http.NO_CACHE + http.cors_headers(services.config)
        self._silent: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def patient(self, server: web.Server) -> Callable[[], asyncio.Protocol]:
        """Returns what makes connections that are given up if no request comes.

        aiohttp itself gives up a connection that is idle after a request, but would wait without
        end for the first one.
        """

        def connect() -> asyncio.Protocol:
            connection = server()
            loop = asyncio.get_running_loop()
            timer = loop.call_later(exchanges.STALL_S, self._lose_patience, connection)
            self._silent[connection] = timer
            return connection

        return connect

    def _lose_patience(self, connection: web.RequestHandler) -> None:
        del self._silent[connection]
        if connection.transport is not None:
            connection.transport.abort()

    async def expect(self, request: web.BaseRequest) -> None:
        """Lets a client send its body, unless the body is too large: ``answer`` then says so."""
        try:
            check_declared(request, self.services.config.max_request_size)
        except TooLarge:
            return
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a request, whatever happens; counts it and logs it."""
        begun = perf_counter()
        if (timer := self._silent.pop(request.protocol, None)) is not None:
            timer.cancel()  # or it would keep the connection's buffers for a minute after its end
        exchange = Exchange(request, http.new_request_id(), self.services, self.constant)
        status = _CLIENT_GONE
        try:
            response = await self._dispatch(exchange)
            status = response.status
            return response
        finally:
            self._record(exchange, status, (perf_counter() - begun) * 1e3)

    async def _dispatch(self, exchange: Exchange) -> web.StreamResponse:
        try:
            return await self._route(exchange)
        except ServeError as error:
            return _refusal(exchange, error)
        except asyncio.CancelledError:
            raise
        except ConnectionError as error:
            logger.info("request %s: the client is gone: %s", exchange.id, error)
            return web.Response(status=_CLIENT_GONE)  # goes nowhere
        except Exception:
            request = exchange.request
            logger.exception("request %s: %s %s failed", exchange.id, request.method, exchange.path)
            return _refusal(exchange, InternalError.of_request(exchange.id))

    async def _route(self, exchange: Exchange) -> web.StreamResponse:
        request = exchange.request
        auth = self.services.auth
        try:
            route, exchange.parameters = self.router.match(request.method, exchange.path)
        except ServeError:
            if self._unknown_token is not None:  # what exists is not told to strangers
                auth.check(self._unknown_token, request.headers.get("Authorization"))
            raise
        exchange.openapi = self._document
        if route.token is not None:
            auth.check(route.token, request.headers.get("Authorization"))
        return await route.answer(exchange)

    def _record(self, exchange: Exchange, status: int, duration_ms: float) -> None:
        request = exchange.request
        self.services.telemetry.response(status)
        version = request.version
        self.services.access_log.write(
            _peer(request),
            request.method,
            request.raw_path,
            f"HTTP/{version.major}.{version.minor}",
            status,
            duration_ms,
        )


FRONT = web.AppKey("front", Front)
"""What dispatches the requests of an application."""


def _peer(request: web.BaseRequest) -> str:
    """The client's address and port, as the access log has them."""
    transport = request.transport  # none where the client has left
    peer = None if transport is None else transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else request.remote or "unix"


def _refusal(exchange: Exchange, error: ServeError) -> web.Response:
    chunk = v2.refusal(error) if v2.refuses(exchange.path) else error.chunk()
    response = exchange.response(chunk)
    if error.status in (408, 413):
        response.force_close()  # the rest of the body is of no use to anybody
    return response


async def _strip(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Removes what aiohttp adds and TorchServe does not: no content type unless one was set."""
    headers = response.headers
    headers.popall("Server", None)
    if headers.get("Content-Type") == UNTYPED:
        del headers["Content-Type"]
