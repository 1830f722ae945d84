"""The routes generate, generate_stream and infer_stream: JSON objects, and server-sent events."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from marserve.frontend.api import http
from marserve.frontend.api.v2_calls import HEADER_LENGTH, call_of, plan_for, routed
from marserve.frontend.errors import BadRequest, ServeError
from marserve.frontend.types import Chunk
from marserve.frontend.v2 import generate, inference, messages
from marserve.frontend.v2.answers import NotOffered

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Exchange
    from marserve.frontend.v2.messages import Answer, Infer

_log = logging.getLogger(__name__)

EVENTS = "text/event-stream; charset=utf-8"


async def once(exchange: Exchange) -> web.StreamResponse:
    """``.../generate``: one answer."""
    model = routed(exchange)
    value, asked = await _read(exchange)
    try:
        answer = await inference.infer(exchange.services, model, asked, call_of(exchange))
    except NotOffered as error:
        text = "generate takes exactly one answer; use generate_stream"
        raise BadRequest(f"{error.message.partition(',')[0]}: {text}") from None
    headers = {**answer.headers, "Content-Type": http.JSON_TYPE}
    return exchange.response(Chunk(_rendered(value, asked, answer), headers=headers))


async def stream(exchange: Exchange) -> web.StreamResponse:
    """``.../generate_stream`` and ``.../infer_stream``: an event an answer.

    An error before the first answer is an error as everywhere; a later one is the last event.
    """
    services, model = exchange.services, routed(exchange)
    value, asked = await _read(exchange)
    answers = inference.stream(services, model, asked, call_of(exchange, streams=True))
    async with aclosing(_events(value, asked, answers)) as events:
        first = await anext(events, b"")
        response = exchange.stream(Chunk(headers={"Content-Type": EVENTS}))
        await response.prepare(exchange.request)
        try:
            if first:
                await exchange.write(response, first)
            async for event in events:
                await exchange.write(response, event)
        except ServeError as error:
            await exchange.write(response, _event(json.dumps({"error": error.message}).encode()))
        except Exception as error:
            if isinstance(error, ConnectionError):
                raise
            _log.exception("request %s: a stream failed", exchange.id)
            text = f"The server failed on this request; see its log for request {exchange.id}."
            await exchange.write(response, _event(json.dumps({"error": text}).encode()))
        await response.write_eof()
    return response


async def _read(exchange: Exchange) -> tuple[dict[str, Any], Infer]:
    """The body as it is, and the request that it stands for."""
    body = await exchange.read_body()
    plan = plan_for(exchange, routed(exchange))
    length = exchange.request.headers.get(HEADER_LENGTH)
    value = {} if length is not None else generate.read_object(body)
    if length is None and not generate.is_infer(value):
        return value, generate.question(value, plan)
    regions = exchange.services.v2.regions
    return {}, messages.parse(body, length, plan.signature, regions)


def _rendered(value: dict[str, Any], asked: Infer, answer: Answer) -> bytes:
    if value:
        return msgspec.json.encode(generate.answer_object(value, asked, answer))
    asked.parameters.pop("binary_data_output", None)
    for output in asked.outputs:
        output.parameters.pop("binary_data", None)
    return messages.render(asked, answer)[0]


async def _events(
    value: dict[str, Any], asked: Infer, answers: AsyncGenerator[Answer, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(answers):
        async for answer in answers:
            if not answer.empty:
                yield _event(_rendered(value, asked, answer))


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
