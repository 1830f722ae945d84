"""Handlers that answer nonsense, which clients may make them do: nobody else may notice."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import Answer, Running

ONE = "minWorkers: 1\nmaxWorkers: 1\n"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(Path(tmp_path_factory.mktemp("served")))
    server.pack("responding", "responding", ONE)
    server.pack("unspeakable", "unspeakable", ONE)
    try:
        yield server.start()
    finally:
        server.stop()


def ask(server: Running, name: str, wish: str) -> Answer:
    """Asks, and sees that the worker has outlived it."""
    pids = server.worker_pids(name)
    answer = server.predict(name, wish, headers=JSON)
    assert server.worker_pids(name) == pids
    return answer


def test_header_that_is_no_text_is_sent_as_text(served: Running) -> None:
    answer = ask(served, "responding", '{"headers": {"X-Count": 5}}')

    assert (answer.status, answer.headers["x-count"]) == (200, "5")


@pytest.mark.parametrize(
    "wish",
    [
        '{"status": "soon"}',
        '{"status": [1]}',
        '{"status": 1e300}',
        '{"status": 99999999999999999999999}',
        '{"headers": {"X-Bad": "a\\u0000b"}}',
        '{"headers": {"": "b"}}',
        '{"body": "\\ud800"}',
    ],
)
def test_nonsense_fails_its_request_alone(served: Running, wish: str) -> None:
    answer = ask(served, "responding", wish)

    assert answer.status == 500
    assert answer.json["type"] == "InternalServerException"


@pytest.mark.parametrize(
    "wish",
    ['{"status": 200, "phrase": 5}', '{"status": "201"}', '{"headers": {"X-Odd": "\\ud800"}}'],
)
def test_what_can_be_read_is_taken(served: Running, wish: str) -> None:
    assert ask(served, "responding", wish).status in (200, 201)


def test_error_in_no_encoding_is_told_all_the_same(served: Running) -> None:
    answer = ask(served, "unspeakable", '{"error": "bad \\ud800 text"}')

    assert (answer.status, answer.message) == (
        500,
        "Prediction failed: ValueError: bad \\ud800 text",
    )


def test_metric_in_no_encoding_is_left_out(served: Running) -> None:
    assert ask(served, "unspeakable", '{"metric": "a\\ud800"}').text == "fine"


@pytest.mark.parametrize("place", ["model", "temp", "home"])
def test_message_names_the_file_but_not_where_the_server_keeps_it(
    served: Running, place: str
) -> None:
    message = ask(served, "unspeakable", json.dumps({"open": place})).message

    assert "FileNotFoundError" in message
    assert "absent.bin" in message
    assert str(served.root) not in message
    assert os.path.expanduser("~/") not in message


def test_a_load_failure_does_not_tell_where_the_server_keeps_its_files(served: Running) -> None:
    served.pack("broken", "unspeakable_load")

    answer = served.manage("POST", "/models?url=broken.mar&initial_workers=1")

    assert answer.status == 500
    assert "absent.bin" in answer.message
    assert str(served.root) not in answer.message


def test_stream_that_cannot_begin_is_one_answer(served: Running) -> None:
    """The connection stays in step: the next answer on it belongs to the next request."""
    with socket.create_connection(("127.0.0.1", served.ports["inference"]), timeout=20) as sock:
        for body in (b'{"stream": "a\\nb"}', b"{}"):
            sock.sendall(
                b"POST /predictions/unspeakable HTTP/1.1\r\nHost: a\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )
        received = b""
        while not received.endswith(b"fine"):
            data = sock.recv(1 << 16)
            assert data, received
            received += data

    assert received.count(b"HTTP/1.1 ") == 2
    assert received.count(b"HTTP/1.1 500 ") == 1
