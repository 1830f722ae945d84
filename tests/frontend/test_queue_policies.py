"""Batches as Triton's dynamic batcher makes them: preferred sizes, delay, levels, time limits."""

from __future__ import annotations

from typing import Any

from marserve.archiver.model_config import DynamicBatching, QueuePolicy
from marserve.frontend.queue_policies import PolicyQueue
from marserve.frontend.types import Chunk, InferenceRequest


class Nowhere:
    def send(self, chunk: Chunk) -> None:
        raise AssertionError("nothing is answered here")


def request(id: str, rows: int = 1, priority: int = 0) -> InferenceRequest:
    return InferenceRequest(id, "predict", {}, [], [], Nowhere(), rows=rows, priority=priority)


def queue(size: int = 8, levels: int = 0, **batching: Any) -> PolicyQueue:
    return PolicyQueue(size, 100, levels, DynamicBatching(**batching))


def filled(queue: PolicyQueue, *rows: int, now: float = 0.0) -> PolicyQueue:
    for number, count in enumerate(rows):
        assert queue.put(request(str(number), count), now)
    return queue


def ids(batch: list[InferenceRequest]) -> str:
    return "".join(each.id for each in batch)


def test_the_largest_preferred_batch_goes_at_once() -> None:
    waiting = filled(
        queue(preferred_batch_size=[2, 4], max_queue_delay_microseconds=10**6), 1, 1, 1, 1, 1
    )

    assert waiting.full()
    assert ids(waiting.cut(0.0)) == "0123"
    assert ids(waiting.cut(0.0)) == ""
    assert waiting.due() == 1.0
    assert ids(waiting.cut(1.0)) == "4"


def test_without_preferred_sizes_all_that_is_there_goes_when_time_is_up() -> None:
    waiting = filled(queue(max_queue_delay_microseconds=500), 3, 2, 4)

    assert waiting.full()
    assert ids(waiting.cut(0.0)) == "01"
    assert ids(waiting.cut(0.0004)) == ""
    assert ids(waiting.cut(0.0005)) == "2"


def test_without_a_delay_nothing_waits() -> None:
    assert ids(filled(queue(), 1, 1).cut(0.0)) == "01"


def test_levels_have_bounds_of_their_own() -> None:
    waiting = queue(levels=2, priority_queue_policy={"2": QueuePolicy(max_queue_size=1)})

    assert waiting.put(request("a", priority=2), 0.0)
    assert not waiting.put(request("b", priority=2), 0.0)
    assert waiting.give_way(2) is None
    assert waiting.put(request("c", priority=1), 0.0)
    assert ids(waiting.cut(0.0)) == "ca"


def test_who_waited_too_long_is_refused() -> None:
    policy = QueuePolicy(default_timeout_microseconds=1000)
    waiting = filled(queue(size=1, default_queue_policy=policy), 1, 1)
    waiting.put(request("late comer"), 0.0015)

    assert ids(waiting.cut(0.002)) == "late comer"
    assert ids(waiting.expired(0.002)) == "01"
    assert waiting.expired(0.002) == []
    assert len(waiting) == 0


def test_or_goes_behind_all_others() -> None:
    policy = QueuePolicy(timeout_action="delay", default_timeout_microseconds=1000)
    waiting = filled(queue(size=1, default_queue_policy=policy), 1)
    waiting.put(request("b"), 0.002)

    assert ids(waiting.cut(0.002)) == "b"
    assert ids(waiting.cut(0.002)) == "0"
    assert waiting.expired(9.0) == []


def test_what_still_waits_is_given_back_whole() -> None:
    policy = QueuePolicy(default_timeout_microseconds=1000)
    waiting = filled(queue(size=1, default_queue_policy=policy), 1, 1)
    waiting.put(request("b"), 1.0)
    waiting.cut(1.0)

    assert sorted(ids(waiting.clear())) == ["0", "1"]


def test_a_level_that_there_is_not_counts_as_the_last() -> None:
    waiting = queue()

    assert waiting.put(request("a", priority=50), 0.0)
    assert ids(waiting.cut(0.0)) == "a"
