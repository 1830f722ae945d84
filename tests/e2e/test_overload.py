"""Ten times more requests than can be served: the rest is refused quickly, the same everywhere."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tests.e2e.chaos import Chaos
from tests.e2e.grpc_clients import Clients
from tests.e2e.running import Running

QUEUE = 10
WORK_S = 0.02
CLIENTS = 10 * (QUEUE + 1)
DURATION_S = 2.0


async def client(port: int, number: int, end: float) -> list[tuple[int, float, str]]:
    """Asks again as soon as it is answered, and a little later if it was refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seen: list[tuple[int, float, str]] = []
    while time.monotonic() < end:
        body = f"c{number}-{len(seen)}"
        head = f"POST /predictions/chaos HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n"
        began = time.monotonic()
        writer.write((head + body).encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(answer.partition("content-length: ")[2].partition("\r\n")[0])
        text = (await reader.readexactly(size)).decode()
        status = int(answer.split()[1])
        assert status != 200 or text.split()[0] == body
        assert status == 200 or "retry-after: 1" in answer
        seen.append((status, time.monotonic() - began, text))
        if status != 200:
            await asyncio.sleep(0.2)
    writer.close()
    return seen


@pytest.mark.parametrize("batch_size", [1, 4])
async def test_ten_times_capacity(server: Running, batch_size: int) -> None:
    config = f"batchSize: {batch_size}\nmaxBatchDelay: 0\njobQueueSize: {QUEUE}\nworkMs: 20\n"
    chaos = Chaos(server, config).start(1)
    end = time.monotonic() + DURATION_S
    port = server.ports["inference"]
    answers = await asyncio.gather(*(client(port, n, end) for n in range(CLIENTS)))
    every = [answer for seen in answers for answer in seen]
    served = [seconds for status, seconds, _ in every if status == 200]
    refused = [seconds for status, seconds, _ in every if status != 200]

    assert {status for status, *_ in every} == {200, 503}
    assert all(f"jobQueueSize {QUEUE}" in text for status, _, text in every if status == 503)
    assert statistics.median(refused) < 0.05  # 1 ms or so, on a machine that has nothing else to do
    assert max(served) < 5 * (QUEUE + 2 * batch_size) * WORK_S + 0.5
    ran = chaos.executions()
    assert ran.total() == len(ran) == len(served)
    assert waiting(server) == 0


def test_job_tickets_let_nothing_wait(server: Running) -> None:
    chaos = Chaos(server, "useJobTicket: true\nworkMs: 500\n").start(1)
    answers = server.together("chaos", ["a", "b", "c", "d"])

    assert sorted(a.status for a in answers) == [200, 503, 503, 503]
    refused = next(a for a in answers if a.status == 503)
    assert "no free worker (useJobTicket)" in refused.message
    assert refused.headers["retry-after"] == "1"
    assert chaos.executions().total() == 1


def test_every_surface_says_busy_in_the_same_way(server: Running) -> None:
    chaos = Chaos(server, "jobQueueSize: 1\nworkMs: 60000\n").start(1)
    (pid,) = chaos.serving(1)
    with ThreadPoolExecutor(2) as clients:
        clients.submit(server.predict, "chaos", "runs")
        server.until(chaos.batches, "it does not run")
        clients.submit(server.predict, "chaos", "waits")
        server.until(lambda: waiting(server) == 1, "it does not wait")
        tensor = '{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["a"]}]}'
        asked = {
            "/predictions/chaos": "a",
            "/v1/models/chaos:predict": '{"instances": ["a"]}',
            "/v2/models/chaos/infer": tensor,
            "/explanations/chaos": "a",
            "/invocations": "a",
        }
        refused = {path: server.ask("POST", path, body) for path, body in asked.items()}
        with Clients(server) as grpc_clients, pytest.raises(grpc.RpcError) as refusal:
            grpc_clients.predict("chaos", "a")
        server.stop(signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)

    assert {503} == {answer.status for answer in refused.values()}
    assert {"1"} == {answer.headers["retry-after"] for answer in refused.values()}
    assert all("has no place in its queue" in answer.text for answer in refused.values())
    assert grpc.StatusCode.UNAVAILABLE == refusal.value.code()
    assert "has no place in its queue" in str(refusal.value.details())
    told = {each.key: each.value for each in refusal.value.trailing_metadata()}
    assert "1000" == str(told["grpc-retry-pushback-ms"])


def waiting(server: Running) -> int:
    return int(server.describe("chaos")["jobQueueStatus"]["pendingRequests"])


def test_stopped_worker_is_not_ready(server: Running) -> None:
    chaos = Chaos(server).start(1)
    (pid,) = chaos.serving(1)

    def readiness(status: int) -> None:
        server.until(lambda: server.ask("GET", "/health/ready").status == status, f"not {status}")

    readiness(200)
    os.kill(pid, signal.SIGSTOP)
    readiness(503)  # a signal takes a moment to arrive
    os.kill(pid, signal.SIGCONT)
    readiness(200)


def test_a_slip_in_a_key_is_named(server: Running) -> None:
    Chaos(server, "batchsize: 3\n").start(1)

    assert "chaos 1.0: model-config.yaml: $.batchsize" in server.console
    assert "batchSize" in server.console  # the key that was meant
