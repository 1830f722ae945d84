"""What a worker has: batches in turn, or many requests at a time, and their time limits."""

from __future__ import annotations

from marserve.frontend.in_flight import InFlight
from marserve.frontend.types import ChunkStream, InferenceRequest


def requests(*names: str) -> list[InferenceRequest]:
    return [InferenceRequest(name, "predict", {}, [], [], ChunkStream()) for name in names]


def ids(found: list[InferenceRequest]) -> list[str]:
    return [request.id for request in found]


def finish(in_flight: InFlight, request: InferenceRequest, now: float) -> list[str] | None:
    del in_flight.requests[request.id]
    batch = in_flight.done(request)
    if batch is not None:
        in_flight.begin_next(now)
    return None if batch is None else ids(batch.requests)


def test_a_batch_is_done_with_its_last_request() -> None:
    in_flight = InFlight()
    a, b = batch = requests("a", "b")
    in_flight.add(batch, 0.0)

    assert finish(in_flight, b, 1.0) is None
    assert finish(in_flight, a, 1.0) == ["a", "b"]
    assert not in_flight.batches


def test_the_clock_of_a_batch_sent_ahead_starts_when_it_can_begin() -> None:
    in_flight = InFlight()
    (a,), ahead = requests("a"), requests("b")
    in_flight.add([a], 0.0)
    in_flight.add(ahead, 0.0)
    finish(in_flight, a, 10.0)

    assert in_flight.overdue(14.0, 5.0) == []
    assert ids(in_flight.overdue(15.0, 5.0)) == ["b"]


def test_requests_at_the_same_time_are_done_in_any_order() -> None:
    in_flight = InFlight(concurrency=3)
    a, b, c = batch = requests("a", "b", "c")
    in_flight.add(batch, 0.0)

    assert finish(in_flight, b, 1.0) == ["b"]
    assert finish(in_flight, c, 1.0) == ["c"]
    assert finish(in_flight, a, 1.0) == ["a"]
    assert not in_flight.batches


def test_overdue_is_said_once_and_hung_goes_on() -> None:
    in_flight = InFlight()
    in_flight.add(requests("a"), 0.0)

    assert ids(in_flight.overdue(5.0, 5.0)) == ["a"]
    assert in_flight.late
    assert in_flight.overdue(6.0, 5.0) == []
    assert not in_flight.hung(9.9, 5.0)
    assert in_flight.hung(10.0, 5.0)


def test_a_piece_of_an_answer_starts_the_clock_anew() -> None:
    in_flight = InFlight()
    (a,) = requests("a")
    in_flight.add([a], 0.0)
    in_flight.overdue(5.0, 5.0)
    in_flight.heard(a, 6.0)

    assert not in_flight.late
    assert in_flight.overdue(10.9, 5.0) == []
    assert not in_flight.hung(15.9, 5.0)
    assert in_flight.hung(16.0, 5.0)


def test_each_of_many_has_its_own_clock() -> None:
    in_flight = InFlight(concurrency=2)
    (a, b) = requests("a", "b")
    in_flight.add([a], 0.0)
    in_flight.add([b], 3.0)
    in_flight.heard(a, 4.0)

    assert ids(in_flight.overdue(8.0, 5.0)) == ["b"]


def test_without_a_response_timeout_nothing_is_late() -> None:
    in_flight = InFlight(concurrency=2, timed=False)
    in_flight.add(requests("a"), 0.0)

    assert in_flight.overdue(1e6, 5.0) == []
    assert not in_flight.hung(1e6, 5.0)


def test_what_a_lost_worker_had() -> None:
    in_turn, together = InFlight(), InFlight(concurrency=9)
    for in_flight in (in_turn, together):
        in_flight.add(requests("a", "b"), 0.0)
        in_flight.add(requests("c"), 0.0)

    assert [ids(part) for part in in_turn.take_all()] == [["a", "b"], ["c"]]
    assert [ids(part) for part in together.take_all()] == [["a", "b", "c"], []]
    assert not in_turn.batches
    assert not together.requests
