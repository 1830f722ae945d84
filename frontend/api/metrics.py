"""The metrics surface: Prometheus text, without a token."""

from __future__ import annotations

from aiohttp import web

from marserve.frontend.api.exchange import Exchange
from marserve.frontend.api.routing import Route
from marserve.frontend.types import Chunk

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


def routes() -> list[Route]:
    """Returns the table of the metrics surface."""
    methods = frozenset({"GET", "HEAD"})
    return [Route("/metrics/{rest*}", metrics, methods, operation="metrics")]


async def metrics(exchange: Exchange) -> web.StreamResponse:
    """``/metrics``; ``name[]`` keeps only the samples of that name."""
    names = [value for name, value in exchange.query_pairs if name == "name[]"]
    body = exchange.services.telemetry.render(names)
    return exchange.response(Chunk(body, headers={"Content-Type": TEXT_FORMAT}))
