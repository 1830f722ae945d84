"""One client that asks as fast as it is answered: its answers are awaited in place."""

from __future__ import annotations

import http.client
import os
import signal

from tests.e2e.chaos import Chaos
from tests.e2e.running import Running

SIZES = (0, 1, 64, 4096, 65_536, 300_000, 3_000_000)


def exchange(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    headers = {"Content-Type": "application/octet-stream"}
    connection.request("POST", "/predictions/echo", body, headers)
    response = connection.getresponse()
    assert response.status == 200
    return response.read()


def test_bodies_of_all_sizes_come_back_whole(server: Running) -> None:
    server.pack("echo", "echo")
    server.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.ports["inference"], timeout=30)
    exchange(connection, b"first")

    for round_number in range(30):
        for size in SIZES:
            body = bytes([round_number]) * size
            assert exchange(connection, body).endswith(body)
    connection.close()


def test_a_worker_that_dies_costs_nothing(server: Running) -> None:
    chaos = Chaos(server).start(1)
    for number in range(60):
        assert chaos.ask(f"before{number}").status == 200
    (pid,) = chaos.serving(1)

    os.kill(pid, signal.SIGKILL)
    for number in range(60):
        assert chaos.ask(f"after{number}").status == 200

    chaos.check()
    chaos.check_run_once()
