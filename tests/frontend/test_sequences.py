"""The queue of stateful sequences, on a clock of our own."""

from __future__ import annotations

from typing import Any

import pytest

from marserve.frontend.errors import ServiceUnavailable
from marserve.frontend.sequences import SequenceQueue, SequenceSettings
from marserve.frontend.types import ChunkStream, InferenceRequest
from marserve.frontend.workers import Worker

ID, START, END = "seq-id", "seq-start", "seq-end"


class Nobody:
    """Stands for a worker: only who it is counts."""


def queue(
    most: int = 4, queue_size: int = 2, workers: int = 2, total_s: float = 1e9
) -> SequenceQueue:
    settings = SequenceSettings(most, queue_size, 10.0, total_s, ID, START, END)
    return SequenceQueue(settings, 4, 100, lambda: workers)


def request(sequence: str = "", name: str = "r", **flags: str) -> InferenceRequest:
    headers = {ID.upper(): sequence} if sequence else {}
    headers |= {{"start": START, "end": END}[k]: v for k, v in flags.items()}
    return InferenceRequest(name, "predict", headers, [], [], ChunkStream())


def ids(batch: list[InferenceRequest]) -> list[str]:
    return [r.id for r in batch]


@pytest.fixture
def one() -> Worker:
    return Nobody()  # type: ignore[return-value]


@pytest.fixture
def two() -> Worker:
    return Nobody()  # type: ignore[return-value]


def test_one_request_of_a_sequence_at_a_time_in_order(one: Worker) -> None:
    waiting = queue()
    first, second = request("a", "1", start="true"), request("a", "2")
    assert waiting.put(first, 0.0)
    assert waiting.put(second, 0.0)

    assert ids(waiting.cut(0.0, worker=one)) == ["1"]
    assert waiting.cut(0.0, worker=one) == []
    waiting.done(first, {}, 1.0)
    assert ids(waiting.cut(1.0, worker=one)) == ["2"]


def test_a_sequence_keeps_its_worker(one: Worker, two: Worker) -> None:
    waiting = queue()
    first = request("a", "1", start="true")
    waiting.put(first, 0.0)
    waiting.cut(0.0, worker=one)
    waiting.done(first, {}, 0.0)
    waiting.put(request("a", "2"), 0.0)

    assert waiting.cut(0.0, worker=two) == []
    assert ids(waiting.cut(0.0, worker=one)) == ["2"]


def test_workers_share_sequences_evenly(one: Worker, two: Worker) -> None:
    waiting = queue(most=4, workers=2)
    for name in "abcd":
        waiting.put(request(name, name, start="true"), 0.0)

    assert ids(waiting.cut(0.0, worker=one)) == ["a", "b"]
    assert ids(waiting.cut(0.0, worker=two)) == ["c", "d"]


def test_no_more_than_there_is_room_for(one: Worker) -> None:
    waiting = queue(workers=1)
    for name in "abc":
        waiting.put(request(name, name, start="true"), 0.0)

    assert ids(waiting.cut(0.0, 2, one)) == ["a", "b"]


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"sequence": "b"}, "Sequence b is not open"),
        ({"sequence": "a"}, "Sequence a has 2 requests waiting already"),
    ],
)
def test_what_is_refused(headers: dict[str, str], words: str) -> None:
    waiting = queue()
    waiting.put(request("a", start="true"), 0.0)
    waiting.put(request("a"), 0.0)

    with pytest.raises(ServiceUnavailable, match=words):
        waiting.put(request(**headers), 0.0)


def test_too_many_sequences() -> None:
    waiting = queue(most=1)
    waiting.put(request("a", start="true"), 0.0)

    with pytest.raises(ServiceUnavailable, match="1 are open"):
        waiting.put(request("b", start="true"), 0.0)


def test_one_that_names_none_gets_a_name() -> None:
    waiting, unnamed = queue(), request()
    waiting.put(unnamed, 0.0)

    assert unnamed.headers[ID].startswith("ts-seq-")
    assert unnamed.headers[START] == "true"


def test_the_end_refuses_what_comes_after_and_frees_the_place(one: Worker) -> None:
    waiting = queue(most=1, workers=1)
    last = request("a", "1", start="true", end="true")
    waiting.put(last, 0.0)
    with pytest.raises(ServiceUnavailable, match="is closed"):
        waiting.put(request("a"), 0.0)
    waiting.cut(0.0, worker=one)
    waiting.done(last, {}, 0.0)

    assert waiting.put(request("b", start="true"), 0.0)


def test_an_answer_ends_sequences(one: Worker) -> None:
    waiting = queue(most=2, workers=1)
    first, second = request("a", "1", start="true"), request("b", "2", start="true")
    waiting.put(first, 0.0)
    waiting.put(second, 0.0)
    waiting.cut(0.0, worker=one)
    waiting.done(first, {}, 0.0)
    waiting.done(second, {END: "a; b"}, 0.0)

    for name in "ab":
        with pytest.raises(ServiceUnavailable, match="is not open"):
            waiting.put(request(name), 0.0)


def test_idle_and_old_sequences_are_over(one: Worker) -> None:
    waiting = queue(total_s=25.0)
    for begin in (0.0, 9.0, 18.0):
        each = request("a", start="true" if not begin else "")
        waiting.put(each, begin)
        waiting.cut(begin, worker=one)
        waiting.done(each, {}, begin)
    with pytest.raises(ServiceUnavailable, match="is over"):
        waiting.put(request("a"), 26.0)  # idle for 8 s only, but 26 s old

    waiting.put(request("b", start="true"), 30.0)
    waiting.clear()
    waiting.put(first := request("c", start="true"), 40.0)
    waiting.cut(40.0, worker=one)
    waiting.done(first, {}, 41.0)
    with pytest.raises(ServiceUnavailable, match="is over"):
        waiting.put(request("c"), 51.5)


def test_one_that_runs_is_not_idle(one: Worker) -> None:
    waiting = queue()
    waiting.put(request("a", start="true"), 0.0)
    waiting.cut(0.0, worker=one)

    assert waiting.put(request("a"), 100.0)


def test_a_lost_worker_loses_its_sequences(one: Worker, two: Worker) -> None:
    waiting = queue(most=2)
    waiting.put(request("a", "1", start="true"), 0.0)
    waiting.put(request("b", "2", start="true"), 0.0)
    waiting.cut(0.0, worker=one)
    waiting.cut(0.0, worker=two)
    waiting.put(request("a", "3"), 0.0)
    waiting.put(request("b", "4"), 0.0)

    assert ids(waiting.lose(one)) == ["3"]
    assert len(waiting) == 1
    with pytest.raises(ServiceUnavailable, match="is not open"):
        waiting.put(request("a"), 0.0)


def test_deadlines_and_callers_that_left(one: Worker) -> None:
    waiting = queue(queue_size=3)
    late, gone, good = (request("a", name, start="true") for name in ("late", "gone", "good"))
    for each in (late, gone, good):
        waiting.put(each, 0.0)
    late.deadline = 1.0
    gone.cancelled = True

    assert ids(waiting.expired(2.0)) == ["late"]
    assert ids(waiting.cut(2.0, worker=one)) == ["good"]
    assert (len(waiting), waiting.oldest_at) == (0, float("inf"))


def test_the_queue_is_bounded() -> None:
    settings = SequenceSettings(9, 9, 10.0, 1e9, ID, START, END)
    waiting = SequenceQueue(settings, 4, 2, lambda: 1)

    assert waiting.put(request("a", start="true"), 0.0)
    assert waiting.put(request("b", start="true"), 0.0)
    assert waiting.remaining == 0
    assert not waiting.put(request("c", start="true"), 0.0)


@pytest.mark.parametrize("workers", [1, 3])
def test_every_open_sequence_finds_a_place(workers: int) -> None:
    waiting = queue(most=4, workers=workers)
    for name in "abcd":
        waiting.put(request(name, name, start="true"), 0.0)
    several: list[Any] = [Nobody() for _ in range(workers)]
    taken = [name for worker in several for name in ids(waiting.cut(0.0, worker=worker))]

    assert taken == ["a", "b", "c", "d"]


def test_an_old_sequence_is_over_once_it_has_answered_what_waits(one: Worker) -> None:
    waiting = queue(total_s=25.0)
    first, second = request("a", "1", start="true"), request("a", "2")
    waiting.put(first, 0.0)
    waiting.put(second, 0.0)
    waiting.cut(0.0, worker=one)
    with pytest.raises(ServiceUnavailable, match="is closed"):
        waiting.put(request("a"), 26.0)
    waiting.done(first, {}, 26.0)

    assert ids(waiting.cut(26.0, worker=one)) == ["2"]
    waiting.done(second, {}, 27.0)
    assert waiting.put(request("a", start="true"), 27.0)


def test_a_place_is_free_again_when_the_caller_of_the_end_or_of_the_begin_left(one: Worker) -> None:
    waiting = queue(most=2, workers=1)
    first, end = request("a", "1", start="true"), request("a", "2", end="true")
    waiting.put(first, 0.0)
    waiting.cut(0.0, worker=one)
    waiting.put(end, 0.0)
    waiting.put(begin := request("b", "3", start="true"), 0.0)
    end.cancelled = begin.cancelled = True
    waiting.done(first, {}, 1.0)

    assert waiting.cut(1.0, worker=one) == []
    for name in "cd":
        assert waiting.put(request(name, name, start="true"), 2.0)
    assert ids(waiting.cut(2.0, worker=one)) == ["c", "d"]
