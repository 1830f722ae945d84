from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.batching import BatchQueue
from marserve.frontend.types import Chunk, InferenceRequest


class Collected:
    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def send(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)


def request(name: str = "r", command: str = "predict") -> InferenceRequest:
    return InferenceRequest(name, command, {}, [], [], Collected())


def ids(batch: list[InferenceRequest]) -> list[str]:
    return [r.id for r in batch]


def test_a_lone_request_waits_a_twentieth_of_the_delay() -> None:
    queue = BatchQueue(batch_size=8, max_delay_s=1.0, capacity=10)
    queue.put(request("a"), now=100.0)

    assert queue.cut(100.04) == []
    assert queue.due() == 100.05
    assert ids(queue.cut(100.05)) == ["a"]


def test_company_is_waited_for_up_to_the_delay() -> None:
    queue = BatchQueue(batch_size=1000, max_delay_s=1.0, capacity=1000)
    now = 0.0
    while now < 0.99:
        queue.put(request(str(now)), now)
        assert queue.cut(now) == []
        now += 0.03

    assert queue.due() == 1.0
    assert len(queue.cut(1.0)) == 33


def test_who_waited_waits_for_those_who_were_just_answered() -> None:
    queue = BatchQueue(batch_size=8, max_delay_s=1.0, capacity=10)
    queue.put(request("waited"), now=10.0)
    queue.freed(20.0, answered=2)

    assert queue.cut(20.0) == []
    assert queue.due() == 20.25
    queue.put(request("again"), now=20.1)
    assert queue.due() == 20.35
    queue.put(request("and again"), now=20.2)
    assert queue.cut(20.21) == []
    assert queue.due() == 20.22
    assert ids(queue.cut(20.22)) == ["waited", "again", "and again"]


def test_a_lone_client_that_asks_again_waits_for_nobody() -> None:
    queue = BatchQueue(batch_size=8, max_delay_s=1.0, capacity=10)
    queue.freed(19.0, answered=1)
    queue.freed(20.0, answered=1)
    queue.put(request("again"), now=20.5)

    assert ids(queue.cut(20.5)) == ["again"]


def test_one_who_was_answered_alone_after_others_is_not_lone() -> None:
    queue = BatchQueue(batch_size=8, max_delay_s=1.0, capacity=10)
    queue.freed(19.0, answered=7)
    queue.freed(20.0, answered=1)
    queue.put(request("again"), now=20.1)

    assert queue.cut(20.1) == []
    queue.put(request("one more"), now=20.11)
    assert ids(queue.cut(20.13)) == ["again", "one more"]


def test_a_worker_that_has_been_free_for_long_is_no_reason_to_hope() -> None:
    queue = BatchQueue(batch_size=8, max_delay_s=1.0, capacity=10)
    queue.freed(20.0, answered=1)
    queue.put(request("new"), now=21.5)

    assert queue.cut(21.5) == []
    assert queue.due() == 21.55


def test_the_delay_is_the_longest_time_that_a_free_worker_waits() -> None:
    queue = BatchQueue(batch_size=1000, max_delay_s=1.0, capacity=1000)
    queue.put(request("first"), 19.0)
    queue.freed(20.0, answered=900)
    for number in range(30):
        queue.put(request(str(number)), 20.0 + number / 32)

    assert queue.due() == 21.0


def test_a_full_batch_goes_at_once_and_in_order() -> None:
    queue = BatchQueue(batch_size=3, max_delay_s=9.0, capacity=10)
    for name in "abcd":
        queue.put(request(name), now=0.0)

    assert ids(queue.cut(0.0)) == ["a", "b", "c"]
    assert queue.cut(0.0) == []
    assert len(queue) == 1


def test_commands_do_not_mix_and_describe_is_alone() -> None:
    queue = BatchQueue(batch_size=4, max_delay_s=0.0, capacity=10)
    commands = ["predict", "predict", "explain", "describe", "describe", "predict"]
    for number, command in enumerate(commands):
        queue.put(request(str(number), command), now=0.0)

    batches = [ids(queue.cut(0.0)) for _ in range(5)]

    assert batches == [["0", "1"], ["2"], ["3"], ["4"], ["5"]]


def test_a_request_whose_worker_died_runs_alone() -> None:
    queue = BatchQueue(batch_size=4, max_delay_s=0.0, capacity=10)
    queue.put(request("new"), now=0.0)
    survivor = request("survivor")
    survivor.attempts = 1
    queue.put_back([survivor])

    assert ids(queue.cut(0.0)) == ["survivor"]
    assert ids(queue.cut(0.0)) == ["new"]


def test_cancelled_requests_give_their_place_up() -> None:
    queue = BatchQueue(batch_size=2, max_delay_s=0.0, capacity=2)
    gone, there = request("gone"), request("there")
    queue.put(gone, 0.0)
    queue.put(there, 0.0)

    assert not queue.put(request("third"), 0.0)
    gone.cancel()
    assert queue.put(request("third"), 0.0)
    assert ids(queue.cut(0.0)) == ["there", "third"]


def test_expired_requests_leave_before_they_run() -> None:
    queue = BatchQueue(batch_size=1, max_delay_s=0.0, capacity=10)
    late, early = request("late"), request("early")
    late.deadline = 5.0
    queue.put(late, 0.0)
    queue.put(early, 0.0)

    assert queue.expired(4.9) == []
    assert ids(queue.expired(5.0)) == ["late"]
    assert ids(queue.cut(5.0)) == ["early"]


@settings(max_examples=100, deadline=None)
@given(
    size=st.integers(1, 5),
    steps=st.lists(
        st.sampled_from(["predict", "explain", "describe", "cut", "cancel"]), max_size=60
    ),
)
def test_nothing_is_lost_doubled_or_reordered(size: int, steps: list[str]) -> None:
    queue, now = BatchQueue(size, 0.01, capacity=1000), 0.0
    sent: list[InferenceRequest] = []
    out: list[InferenceRequest] = []
    for step in steps:
        now += 0.004
        if step == "cut":
            batch = queue.cut(now)
            assert len(batch) <= size
            assert len({r.command for r in batch}) <= 1
            out += batch
        elif step == "cancel" and sent and sent[-1] not in out:
            sent[-1].cancel()
        elif step != "cancel":
            sent.append(request(str(len(sent)), step))
            assert queue.put(sent[-1], now)
    while batch := queue.cut(now + 9):
        out += batch

    assert out == [r for r in sent if not r.cancelled or r in out]
    assert len(queue) == 0
