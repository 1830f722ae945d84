from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.frontend.test_batching import Collected, ids

from marserve.frontend.batching import BatchQueue
from marserve.frontend.errors import BadRequest
from marserve.frontend.priorities import level_of
from marserve.frontend.types import InferenceRequest


def request(
    name: str, priority: int = 0, rows: int = 1, headers: dict[str, str] | None = None
) -> InferenceRequest:
    return InferenceRequest(
        name, "predict", headers or {}, [], [], Collected(), rows=rows, priority=priority
    )


def queue_of(*requests: InferenceRequest, size: int = 1, capacity: int = 10) -> BatchQueue:
    queue = BatchQueue(size, 0.0, capacity, levels=3)
    for number, each in enumerate(requests):
        assert queue.put(each, float(number))
    return queue


def drained(queue: BatchQueue) -> list[str]:
    out: list[str] = []
    while batch := queue.cut(99.0):
        out += ids(batch)
    return out


def test_the_first_level_is_served_first_and_each_in_its_order() -> None:
    queue = queue_of(request("c", 3), request("a1", 1), request("b", 2), request("a2", 1))

    assert queue.oldest_at == 0.0
    assert drained(queue) == ["a1", "a2", "b", "c"]
    assert queue.oldest_at == float("inf")


def test_a_batch_takes_from_all_levels() -> None:
    queue = queue_of(request("c", 3), request("b", 2), request("a", 1), size=2)

    assert ids(queue.cut(0.0)) == ["a", "b"]
    assert ids(queue.cut(0.0)) == ["c"]


def test_in_a_full_queue_the_newest_of_the_last_level_gives_way() -> None:
    queue = queue_of(request("c1", 3), request("c2", 3), request("b", 2), capacity=3)

    assert not queue.put(request("a", 1), 9.0)
    gone = queue.give_way(1)
    assert gone is not None
    assert gone.id == "c2"
    assert queue.put(request("a", 1), 9.0)
    assert drained(queue) == ["a", "b", "c1"]


def test_nobody_gives_way_to_his_like() -> None:
    queue = queue_of(request("b", 2), request("a", 1))

    assert queue.give_way(2) is None
    assert queue.give_way(3) is None
    assert drained(queue) == ["a", "b"]


def test_without_levels_nobody_gives_way() -> None:
    queue = BatchQueue(1, 0.0, 1)
    queue.put(request("a"), 0.0)

    assert queue.give_way(0) is None


def test_deadlines_and_retries_keep_the_order() -> None:
    late, again = request("late", 1), request("again", 2)
    late.deadline, again.attempts = 5.0, 1
    queue = queue_of(late, request("b", 2), request("c", 3))
    queue.put_back([again])

    assert ids(queue.expired(5.0)) == ["late"]
    assert drained(queue) == ["again", "b", "c"]


@pytest.mark.parametrize(
    ("headers", "own", "level"),
    [
        ({}, 0, 2),
        ({"X-Marserve-Priority": "1"}, 0, 1),
        ({"x-marserve-priority": "0"}, 0, 2),
        ({"X-MARSERVE-PRIORITY": "9"}, 0, 2),
        ({"X-Marserve-Priority": "1"}, 3, 3),
    ],
)
def test_level_of_a_request(headers: dict[str, str], own: int, level: int) -> None:
    assert level_of(request("r", own, headers=headers), levels=3, default=2) == level


@pytest.mark.parametrize("text", ["-1", "high", "", "1.5"])
def test_what_is_no_level_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"must be 1 \(first\) to 3"):
        level_of(request("r", headers={"X-Marserve-Priority": text}), levels=3, default=2)


def test_rows_fill_a_batch() -> None:
    queue = BatchQueue(8, 9.0, 10)
    for name, rows in (("a", 3), ("b", 4), ("c", 2), ("d", 20), ("e", 1)):
        queue.put(request(name, rows=rows), 0.0)

    assert [ids(queue.cut(0.0)) for _ in range(4)] == [["a", "b"], ["c"], ["d"], []]
    assert ids(queue.cut(9.0)) == ["e"]


def test_waiting_rows_make_a_batch_full() -> None:
    queue = BatchQueue(8, 9.0, 10)
    queue.put(request("a", rows=5), 0.0)
    assert not queue.full()
    gone = request("b", rows=3)
    queue.put(gone, 0.0)
    assert queue.full()

    gone.deadline = 1.0
    queue.expired(1.0)
    assert not queue.full()


@settings(max_examples=100, deadline=None)
@given(
    size=st.integers(1, 6),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put", "put", "cut", "cancel", "way", "back"]), st.integers(1, 3)
        ),
        max_size=60,
    ),
)
def test_nothing_is_lost_or_doubled(size: int, steps: list[tuple[str, int]]) -> None:
    queue, sent, out = BatchQueue(size, 0.0, 1000, levels=3), list[InferenceRequest](), set[str]()
    for step, number in steps:
        if step == "put":
            sent.append(request(str(len(sent)), number, rows=number))
            assert queue.put(sent[-1], 0.0)
        elif step == "cancel" and sent:
            sent[-number % len(sent)].cancelled = True
        elif step == "way" and (gone := queue.give_way(number)) is not None:
            assert gone.priority > number
            out.add(gone.id)
        elif step in ("cut", "back"):
            batch = queue.cut(0.0)
            assert sum(r.rows for r in batch) <= size or len(batch) == 1
            assert [r.priority for r in batch] == sorted(r.priority for r in batch)
            if step == "back":
                queue.put_back(batch)
            else:
                assert out.isdisjoint(ids(batch))
                out |= set(ids(batch))
    rest = drained(queue)

    assert out.isdisjoint(rest)
    assert out | set(rest) | {r.id for r in sent if r.cancelled} == {r.id for r in sent}
    assert not queue.full()
