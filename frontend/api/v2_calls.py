"""What all V2 requests that ask a model have in common over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marserve.frontend.api import http
from marserve.frontend.v2.inference import Call
from marserve.frontend.v2.plans import Plan, plan_of

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Exchange
    from marserve.frontend.model import Model

HEADER_LENGTH = "Inference-Header-Content-Length"
BINARY_TYPE = "application/octet-stream"


def routed(exchange: Exchange) -> Model:
    """Returns the version of a model that answers a request.

    Raises:
        ModelNotFound: If there is no such model.
        VersionNotFound: If it has no such version.
    """
    return exchange.services.registry.route(exchange.model_name, exchange.version)


def plan_for(exchange: Exchange, model: Model) -> Plan:
    """Returns how a model is asked."""
    return plan_of(model, exchange.services.config.default_service_handler)


def call_of(exchange: Exchange, streams: bool = False) -> Call:
    """Returns what surrounds a request.

    Args:
        exchange: The request.
        streams: Whether its client takes an answer in several pieces.

    Raises:
        BadRequest: If its time limit is none.
    """
    request = exchange.request
    return Call(
        http.decode_headers(request.raw_headers, exchange.services.auth.enabled),
        exchange.id,
        http.parse_timeout(request.headers.get(http.TIMEOUT_HEADER)),
        exchange.version is not None,
        streams,
    )
