"""Stateful sequences through a real server: order, place, limits and ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.e2e.running import Answer, Running

CONFIG = """
sequenceBatching: true
sequenceMaxIdleMSec: {idle}
maxNumSequence: 4
maxSequenceJobQueueSize: 10
batchSize: 4
minWorkers: 2
maxWorkers: 2
"""


def add(server: Running, sequence: str, number: int | str, **flags: bool) -> Answer:
    headers: dict[str, Any] = {f"ts_request_sequence_{k}": "true" for k, v in flags.items() if v}
    if sequence:
        headers["ts_request_sequence_id"] = sequence
    return server.predict("sums", str(number), headers=headers)


@pytest.fixture
def sums(server: Running) -> Running:
    server.pack("sums", "stateful", CONFIG.format(idle=60_000))
    return server.start()


def total(answer: Answer) -> int:
    assert answer.status == 200, answer.text
    return int(answer.text.split()[0])


def place(answer: Answer) -> str:
    return answer.text.split()[1]


def test_a_sequence_stays_with_its_worker(sums: Running) -> None:
    answers = [add(sums, "a", 1, start=True), *(add(sums, "a", n) for n in (2, 3))]

    assert [total(a) for a in answers] == [1, 3, 6]
    assert len({place(a) for a in answers}) == 1


def test_sequences_are_shared_by_the_workers_and_do_not_mix(sums: Running) -> None:
    def run(name: str) -> list[Answer]:
        first = add(sums, name, 1, start=True)
        return [first, *(add(sums, name, 1) for _ in range(19))]

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(run, "abcd"))

    assert all([total(a) for a in answers] == list(range(1, 21)) for answers in runs)
    assert all(len({place(a) for a in answers}) == 1 for answers in runs)
    places = [place(answers[0]) for answers in runs]
    assert sorted(map(places.count, set(places))) == [2, 2]


def test_requests_of_one_sequence_run_one_after_the_other(sums: Running) -> None:
    assert total(add(sums, "a", 0, start=True)) == 0

    with ThreadPoolExecutor(8) as pool:
        totals = list(pool.map(lambda _: total(add(sums, "a", 1)), range(8)))

    assert sorted(totals) == list(range(1, 9))


def test_a_request_that_names_none_begins_one(sums: Running) -> None:
    answer = add(sums, "", 5)
    name = answer.headers["ts_request_sequence_id"]

    assert name.startswith("ts-seq-")
    assert total(add(sums, name, 6)) == 11


def test_the_end_closes_it(sums: Running) -> None:
    add(sums, "a", 1, start=True)
    assert total(add(sums, "a", 1, end=True)) == 2

    refused = add(sums, "a", 1)

    assert (refused.status, refused.json["type"]) == (503, "ServiceUnavailableException")
    assert "Sequence a is not open" in refused.message
    assert total(add(sums, "a", 7, start=True)) == 7


def test_no_more_sequences_than_allowed(sums: Running) -> None:
    for name in "abcd":
        assert total(add(sums, name, 1, start=True)) == 1

    refused = add(sums, "e", 1, start=True)

    assert (refused.status, "4 are open (maxNumSequence)" in refused.message) == (503, True)
    assert total(add(sums, "a", 1, end=True)) == 2
    assert total(add(sums, "e", 1, start=True)) == 1


def test_an_unknown_sequence_must_begin(sums: Running) -> None:
    refused = add(sums, "never", 1)

    assert (refused.status, "Sequence never is not open" in refused.message) == (503, True)
    assert "retry-after" in refused.headers


def test_a_worker_that_dies_takes_its_sequences_alone(sums: Running) -> None:
    names = "abcd"
    begun = {name: place(add(sums, name, 1, start=True)) for name in names}
    dead = begun["a"]
    killed = add(sums, "a", "exit")

    assert (killed.status, "Worker died." in killed.message) == (500, True)
    for name, worker in begun.items():
        answer = add(sums, name, 1)
        if worker == dead:
            assert (answer.status, "is not open" in answer.message) == (503, True)
        else:
            assert total(answer) == 2


def test_an_idle_sequence_is_over(server: Running) -> None:
    server.pack("sums", "stateful", CONFIG.format(idle=1))
    server.start()
    assert total(add(server, "a", 1, start=True)) == 1

    def over() -> bool:
        return add(server, "a", 0).status == 503

    server.until(over, "the sequence never ends")


def test_workers_that_stay_take_all_sequences(sums: Running) -> None:
    scaled = sums.manage("PUT", "/models/sums?min_worker=1&max_worker=1&synchronous=true")
    assert scaled.status == 200
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda name: add(sums, name, 1, start=True), "abcd"))

    assert [total(a) for a in answers] == [1] * 4
    assert len({place(a) for a in answers}) == 1
