"""Clients that go away at every stage: their place is free, and the worker stays."""

from __future__ import annotations

import socket
import threading

import pytest
from tests.e2e.chaos import Chaos
from tests.e2e.running import Running


def send(server: Running, body: str) -> socket.socket:
    """Sends a request and returns its connection."""
    connection = socket.create_connection(("127.0.0.1", server.ports["inference"]), 30)
    head = f"POST /predictions/chaos HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall((head + body).encode())
    return connection


@pytest.fixture
def chaos(server: Running) -> Chaos:
    return Chaos(server, "workMs: 400\n").start(1)


def ran(chaos: Chaos, token: str) -> None:
    chaos.server.until(lambda: token in chaos.executions(), f"{token} was not run")


def test_gone_while_queued(chaos: Chaos) -> None:
    (pid,) = chaos.serving(1)
    first = send(chaos.server, "first")
    ran(chaos, "first")
    for number in range(5):
        send(chaos.server, f"gone{number}").close()
    last = chaos.ask("last")
    first.close()

    assert last.text == "last 1.0"
    assert set(chaos.executions()) == {"first", "last"}
    assert chaos.serving(1) == [pid]


def test_gone_while_running(chaos: Chaos) -> None:
    (pid,) = chaos.serving(1)
    gone = send(chaos.server, "gone")
    ran(chaos, "gone")
    gone.close()

    assert chaos.ask("next").text == "next 1.0"
    assert chaos.serving(1) == [pid]


def test_gone_in_the_middle_of_a_stream(chaos: Chaos) -> None:
    (pid,) = chaos.serving(1)
    stream = send(chaos.server, "long stream500")  # 10 s of pieces
    ran(chaos, "piece-3")
    stream.close()
    after = chaos.ask("next")

    assert after.text == "next 1.0"
    assert chaos.executions().total() < 100, "it went on streaming to nobody"
    assert chaos.serving(1) == [pid]
    assert "CallersGone" not in chaos.server.console


def test_streams_to_others_go_on(server: Running) -> None:
    chaos = Chaos(server, "batchSize: 2\nmaxBatchDelay: 2000\n").start(1)
    gone = send(server, "gone stream20")
    kept: list[str] = []
    caller = threading.Thread(target=lambda: kept.append(chaos.ask("kept", "stream20").text))
    caller.start()
    ran(chaos, "piece-1")
    gone.close()
    caller.join(30)

    assert len(chaos.batches()[0]) == 3  # both were in one batch
    assert kept[0] == "".join(f"piece {n} " for n in range(20)) + "kept 1.0"


def test_gone_before_the_body_came(chaos: Chaos) -> None:
    (pid,) = chaos.serving(1)
    with socket.create_connection(("127.0.0.1", chaos.server.ports["inference"]), 30) as half:
        half.sendall(b"POST /predictions/chaos HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\nx")

    assert chaos.ask("next").text == "next 1.0"
    assert set(chaos.executions()) == {"next"}
    assert chaos.serving(1) == [pid]
