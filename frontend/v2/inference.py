"""V2 inference, the same for every surface: tensors to a model, and its tensors back.

A surface parses its message to ``messages.Infer``, finds the model (``registry.route``), and calls
``infer`` for one answer or ``stream`` for as many as the model gives. Both end the request when
their caller is cancelled. Errors are ``ServeError``, with a status and a text for the client.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from marserve.frontend.api.http import new_request_id
from marserve.frontend.types import ChunkStream, InferenceRequest
from marserve.frontend.v2 import rows
from marserve.frontend.v2.answers import NotOffered, check_chunk, read_answer, wanted
from marserve.frontend.v2.checks import check_request
from marserve.frontend.v2.messages import Answer, Infer
from marserve.frontend.v2.plans import Plan, plan_of
from marserve.frontend.v2.questions import Call, question, row_question

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.model import Model
    from marserve.worker.wire import Buffer

IN_PIECES = (
    "the model answers in pieces, which V2 infer cannot carry; use generate_stream or, over gRPC,"
    " ModelStreamInfer"
)
NO_ANSWER = "the model gave no answer to this request; V2 infer takes exactly one"

__all__ = ["Answer", "Call", "Infer", "infer", "stream"]


async def infer(services: Services, model: Model, asked: Infer, call: Call) -> Answer:
    """Asks a model for one answer.

    Args:
        services: Of the server.
        model: The version that answers.
        asked: The request.
        call: What surrounds it.

    Raises:
        BadRequest: If the model takes no such tensors; naming the tensor.
        ModelFailed: If the model fails; with its own status.
        NotOffered: If it gives more than one answer.
        ServiceUnavailable: If no worker can answer, or too many requests wait.
    """
    plan = planned(services, model, asked)
    if plan.by_row:
        return await _infer_rows(services, model, plan, asked, call)
    found: Answer | None = None
    async with aclosing(_pieces(services, model, plan, asked, call)) as pieces:
        async for piece in pieces:
            if found is None:
                found = piece
            elif not piece.empty:
                raise NotOffered(IN_PIECES)
    if found is None or found.empty:
        raise NotOffered(NO_ANSWER)
    return found


async def stream(
    services: Services, model: Model, asked: Infer, call: Call
) -> AsyncGenerator[Answer, None]:
    """Asks a model for all of its answers, as they come; the last one has ``last``.

    Args:
        services: Of the server.
        model: The version that answers.
        asked: The request.
        call: What surrounds it; ``streams`` should be set.

    Raises:
        ServeError: As ``infer`` does; also after some answers have come.
    """
    plan = planned(services, model, asked)
    pieces = _row_pieces if plan.by_row else _pieces
    async with aclosing(pieces(services, model, plan, asked, call)) as found:
        async for piece in found:
            yield piece


def planned(services: Services, model: Model, asked: Infer) -> Plan:
    """Returns how a model is asked; ``question`` compares requests of tensors itself.

    Raises:
        BadRequest: If rows do not fit the model; naming the tensor.
    """
    plan = plan_of(model, services.config.default_service_handler)
    if plan.by_row and plan.signature is not None and asked.rows is None:
        check_request(plan.signature, asked)
    return plan


async def _pieces(
    services: Services, model: Model, plan: Plan, asked: Infer, call: Call
) -> AsyncGenerator[Answer, None]:
    chunks = ChunkStream()
    request = question(model, asked, call, chunks, plan.counts_rows)
    model.submit(request)
    try:
        async for chunk in chunks:
            yield read_answer(model, asked, chunk)
        if services.v2.traces.on:
            services.v2.traces.note(model, request)
    finally:
        _leave([request])


async def _row_pieces(
    services: Services, model: Model, plan: Plan, asked: Infer, call: Call
) -> AsyncGenerator[Answer, None]:
    """Pieces of the answer to a lone row; several rows have one answer, which is whole."""
    split = _split(plan, asked)
    if len(split) != 1:
        yield await _infer_rows(services, model, plan, asked, call)
        return
    chunks = ChunkStream()
    request = row_question(model, asked, call, chunks, split[0], call.id)
    model.submit(request)
    begun = False
    try:
        async for chunk in chunks:
            body = check_chunk(chunk).body
            empty = begun and chunk.last and not body
            outputs = [] if empty else wanted(asked, rows.gather([body]), plan.signature)
            yield Answer(
                model.name, model.version, outputs, {}, {}, chunk.status, chunk.last, empty
            )
            begun = True
    finally:
        _leave([request])


async def _infer_rows(
    services: Services, model: Model, plan: Plan, asked: Infer, call: Call
) -> Answer:
    bodies = await ask_each(services, model, _split(plan, asked), asked, call)
    outputs = wanted(asked, rows.gather(bodies), plan.signature)
    return Answer(model.name, model.version, outputs, {}, {})


async def ask_each(
    services: Services, model: Model, split: list[rows.Row], asked: Infer, call: Call
) -> list[Buffer]:
    """Asks for so many rows at a time that they leave room in the queue; returns their answers.

    Args:
        services: Of the server.
        model: The version that answers.
        split: What it gets, a request each.
        asked: The request that they are the rows of.
        call: What surrounds that.

    Raises:
        ServeError: As ``infer`` does; naming the row.
    """
    settings = model.settings
    most = settings.batch_size * max(1, model.pool.ready)
    most = max(1, min(most, settings.job_queue_size // 2))
    bodies: list[Buffer] = []
    for begin in range(0, len(split), most):
        some = split[begin : begin + most]
        bodies += await _ask_rows(services, model, asked, call, some, begin)
    return bodies


def _split(plan: Plan, asked: Infer) -> list[rows.Row]:
    if asked.rows is not None:
        return asked.rows
    return rows.split(asked.inputs, plan.by_row == "transformer_handler")


async def _ask_rows(
    services: Services,
    model: Model,
    asked: Infer,
    call: Call,
    some: list[rows.Row],
    first: int,
) -> list[Buffer]:
    """Sends rows to a model together; returns their answers, or raises the first failure."""
    streams, requests = [], []
    try:
        for number, row in enumerate(some, first):
            id = new_request_id() if number else call.id
            chunks = ChunkStream()
            request = row_question(model, asked, call, chunks, row, id)
            model.submit(request)
            requests.append(request)
            streams.append(chunks)
        bodies = []
        for number, chunks in enumerate(streams, first):
            chunk = check_chunk(await anext(chunks), f"row {number}: ")
            if not chunk.last:
                raise NotOffered("the model answers in pieces, which V2 infer cannot carry")
            bodies.append(chunk.body)
        if services.v2.traces.on:
            services.v2.traces.note(model, requests[0])
        return bodies
    finally:
        _leave(requests)


def _leave(requests: list[InferenceRequest]) -> None:
    for request in requests:
        if not request.answered:
            request.cancel()
