from __future__ import annotations

import pytest

from marserve.handlers.context import Context
from marserve.handlers.streaming import send_intermediate_predict_response

Sent = list[tuple[int, object]]


@pytest.fixture
def sent() -> Sent:
    return []


@pytest.fixture
def context(sent: Sent) -> Context:
    made = Context("m", "/nowhere", {"model": {}})
    made.begin(["a", "b", "c"], [{}, {}, {}], lambda index, value: sent.append((index, value)))
    return made


def test_every_request_gets_its_piece(context: Context, sent: Sent) -> None:
    ids = context.request_ids or {}
    send_intermediate_predict_response(["x", b"y", {"z": 1}], ids, "Intermediate", 200, context)

    assert [(0, "x"), (1, b"y"), (2, {"z": 1})] == sent


def test_a_part_of_the_batch_is_known_by_its_ids(context: Context, sent: Sent) -> None:
    send_intermediate_predict_response(["x", "y"], {0: "c", 1: "b"}, "", 200, context)
    send_intermediate_predict_response(["z"], {0: "a", 1: "b"}, "", 200, context)

    assert [(2, "x"), (1, "y"), (0, "z")] == sent


def test_a_status_goes_with_the_piece(context: Context) -> None:
    send_intermediate_predict_response(["x"], {0: "b"}, "Partial", 206, context)

    assert (206, "Partial") == context.get_response_status(1)
    assert (200, "") == context.get_response_status(0)


@pytest.mark.parametrize(
    ("pieces", "ids", "reason"),
    [
        (["x", "y"], {0: "a"}, "2 pieces for 1 requests"),
        (["x"], {0: "unknown"}, "'unknown' is not in the batch"),
    ],
)
def test_pieces_that_are_nobodys_are_refused(
    context: Context, pieces: list[str], ids: dict[int, str], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        send_intermediate_predict_response(pieces, ids, "", 200, context)


def test_no_context_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs the handler's context"):
        send_intermediate_predict_response(["x"], {0: "a"})


def test_outside_of_a_batch_there_is_nobody_to_stream_to() -> None:
    context = Context("m", "/nowhere", {"model": {}})
    context.request_ids = {0: "a"}

    with pytest.raises(RuntimeError, match="nobody to stream to"):
        send_intermediate_predict_response(["x"], {0: "a"}, "", 200, context)
