"""Pieces of an answer that go out before the handler returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marserve.handlers.context import Context


def send_intermediate_predict_response(
    ret: Sequence[Any],
    req_id_map: Mapping[int, str],
    message: str = "",
    code: int = 200,
    context: Context | None = None,
) -> None:
    """Sends one piece of the answer of each of some requests; what ``handle`` returns is the last.

    Args:
        ret: One piece a request.
        req_id_map: Request id by index in ``ret``: ``context.request_ids``, or a part of it.
        message: Ignored; kept for those who pass it.
        code: HTTP status; counts if it is not 200 and nothing was sent of the answer before.
        context: The context of the batch at hand.

    Raises:
        ValueError: If there is no context, or ``ret`` and ``req_id_map`` do not fit each other and
            the batch.
    """
    if context is None:
        raise ValueError("send_intermediate_predict_response needs the handler's context")
    if len(ret) > len(req_id_map):
        raise ValueError(f"got {len(ret)} pieces for {len(req_id_map)} requests; expected one each")
    index_of = {request_id: index for index, request_id in (context.request_ids or {}).items()}
    for position, piece in enumerate(ret):
        request_id = req_id_map[position]
        if request_id not in index_of:
            raise ValueError(f"request {request_id!r} is not in the batch at hand")
        index = index_of[request_id]
        if code != 200:
            context.set_response_status(code, message, index)
        context.emit(index, piece)
