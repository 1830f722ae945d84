"""Workers that answer many requests at a time: coroutine handlers and continuous batches."""

from __future__ import annotations

import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.running import Answer, Running

JSON = {"Content-Type": "application/json"}


def count(server: Running, begin: int, number: int) -> Answer:
    body = json.dumps({"from": begin, "count": number})
    return server.predict("counter", body, headers=JSON)


def expected(begin: int, number: int) -> str:
    return "".join(f"{n} " for n in range(begin, begin + number))


@pytest.fixture
def counter(server: Running) -> Running:
    journal = server.root / "journal.txt"
    journal.touch()
    config = f"continuousBatching: true\nbatchSize: 4\njournal: {journal}\nminWorkers: 1\n"
    server.pack("counter", "continuous", config + "maxWorkers: 1\n")
    return server.start()


def steps(server: Running) -> list[list[str]]:
    return [line.split() for line in (server.root / "journal.txt").read_text().splitlines()]


def test_a_request_is_answered_piece_by_piece(counter: Running) -> None:
    answer = count(counter, 3, 4)

    assert (answer.status, answer.text) == (200, "3 4 5 6 ")
    assert answer.headers["transfer-encoding"] == "chunked"
    assert len(steps(counter)) == 4


def test_one_step_needs_no_stream(counter: Running) -> None:
    answer = count(counter, 9, 1)

    assert (answer.text, "transfer-encoding" in answer.headers) == ("9 ", False)


def test_requests_join_and_leave_between_steps(counter: Running) -> None:
    wishes = [(100 * n, 20 + 7 * n) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda wish: count(counter, *wish), wishes))

    assert [a.text for a in answers] == [expected(*wish) for wish in wishes]
    sizes = [len(step) for step in steps(counter)]
    assert max(sizes) == 4, "more than batchSize, or they never met"
    assert len(sizes) < sum(number for _, number in wishes)
    fresh = [name for step in steps(counter) for name in step if name.startswith("[")]
    assert len(fresh) == len(set(fresh)) == 6, "a request came with its parts more than once"


def test_one_that_cannot_be_admitted_fails_alone(counter: Running) -> None:
    with ThreadPoolExecutor(4) as pool:
        good = [pool.submit(count, counter, n, 40) for n in (0, 500)]
        bad = counter.predict("counter", '{"fail": true}', headers=JSON)

    assert (bad.status, "this one cannot be counted" in bad.message) == (500, True)
    assert [f.result().text for f in good] == [expected(0, 40), expected(500, 40)]


def test_one_whose_caller_left_makes_room(counter: Running) -> None:
    body = json.dumps({"from": 0, "count": 100_000})
    head = "POST /predictions/counter HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    for _ in range(4):
        gone = socket.create_connection(("127.0.0.1", counter.ports["inference"]), 30)
        gone.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert gone.recv(100).startswith(b"HTTP/1.1 200")
        gone.close()

    assert count(counter, 1, 2).text == "1 2 "


def test_describe_is_answered_meanwhile(counter: Running) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(count, counter, 0, 50)
        described = counter.manage("GET", "/models/counter").json[0]

        assert described["continuousBatching"] is True
        assert running.result().text == expected(0, 50)


def test_a_worker_that_dies_costs_only_what_it_had_begun_to_send(counter: Running) -> None:
    (pid,) = counter.worker_pids("counter")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(broken_or_answered, counter)
        counter.until(lambda: len(steps(counter)) > 2, "nothing runs")
        os.kill(pid, signal.SIGKILL)
        assert running.result() == "broken"

    assert count(counter, 5, 2).text == "5 6 "


def broken_or_answered(server: Running) -> str:
    """A stream that ends without its last chunk is broken: the client can tell."""
    try:
        return count(server, 0, 100_000).text
    except OSError:
        return "broken"
    except ValueError:
        return "no number"
    except Exception as error:
        return "broken" if type(error).__name__ == "IncompleteRead" else repr(error)


@pytest.fixture
def meeting(server: Running) -> Running:
    config = "asyncCommunication: true\nresponseTimeout: 1\nminWorkers: 1\nmaxWorkers: 1\n"
    server.pack("meeting", "meeting", config)
    return server.start()


def test_coroutines_run_at_the_same_time(meeting: Running) -> None:
    answers = meeting.together("meeting", ["5"] * 5)

    assert [a.status for a in answers] == [200] * 5
    assert len({a.text for a in answers}) == 5
    for answer in answers:
        assert answer.text == f"met 5 as {answer.headers['x-request-id']}"


def test_one_coroutine_fails_alone(meeting: Running) -> None:
    bad, *good = meeting.together("meeting", ["fail", "2", "2"])

    assert (bad.status, "ValueError: nobody came" in bad.message) == (500, True)
    assert [a.status for a in good] == [200, 200]


def test_a_coroutine_streams(meeting: Running) -> None:
    answer = meeting.predict("meeting", "stream")

    assert (answer.status, answer.text) == (200, "piece last")


def test_the_callers_limit_holds_and_the_worker_goes_on(meeting: Running) -> None:
    (pid,) = meeting.worker_pids("meeting")
    late = meeting.predict("meeting", "forever", headers={"X-Request-Timeout": "0.3"})

    assert (late.status, late.json["type"]) == (504, "RequestTimeoutException")
    assert meeting.predict("meeting", "1").status == 200
    assert meeting.worker_pids("meeting") == [pid]


def test_a_handler_that_is_no_coroutine_is_refused(server: Running, tmp_path: Path) -> None:
    server.pack("echo", "echo", "asyncCommunication: true\n")
    server.models = None
    server.start()

    answer = server.manage("POST", "/models?url=echo.mar&initial_workers=1")

    assert answer.status == 500
    assert 'asyncCommunication: true needs "async def handle"' in answer.message


def test_a_quick_worker_never_has_more_than_its_batch(server: Running) -> None:
    journal = server.root / "journal.txt"
    journal.touch()
    config = f"continuousBatching: true\nbatchSize: 1\njournal: {journal}\nminWorkers: 1\n"
    server.pack("counter", "continuous", config + "maxWorkers: 1\nstep_s: 0\n")
    server.start()
    body = '{"from": 7, "count": 3}'
    head = "POST /predictions/counter HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    asked = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    callers = [
        socket.create_connection(("127.0.0.1", server.ports["inference"]), 30) for _ in range(60)
    ]
    for _ in range(3):
        for caller in callers:
            caller.sendall(asked)
        for caller in callers:
            answer = b""
            while not answer.endswith(b"\r\n0\r\n\r\n"):
                piece = caller.recv(1 << 16)
                assert piece, answer
                answer += piece
            assert answer.startswith(b"HTTP/1.1 200")
    for caller in callers:
        caller.close()

    assert [len(step) for step in steps(server)] == [1] * 540
