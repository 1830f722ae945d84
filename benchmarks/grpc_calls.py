"""What a gRPC call costs: grpc's own server with nothing behind it, and ours with a no-op handler.

    python benchmarks/grpc_calls.py [--seconds 3] [--connections 1 32] [--bytes 64]

Prints calls a second and, less disturbed by the client on the same cores, microseconds of the
server process's own processor time a call. HTTP on the same server stands beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
from load import Target
from server import Server, command

from marserve.frontend.grpc.inference_pb2 import PredictionsRequest

BARE = """
import asyncio, sys, grpc.aio, uvloop
async def serve():
    server = grpc.aio.server()
    async def echo(message, context):
        return message
    method = grpc.unary_unary_rpc_method_handler(echo)
    handler = grpc.method_handlers_generic_handler("bare", {"Echo": method})
    server.add_generic_rpc_handlers((handler,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()
uvloop.run(serve())
"""
OURS = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
Ask = Callable[[], Awaitable[object]]


async def load(ask: Ask, connections: int, seconds: float) -> int:
    """Asks from so many coroutines for so long; returns the number of answers."""
    end, done = time.perf_counter() + seconds, 0

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await ask()
            done += 1

    await asyncio.gather(*(client() for _ in range(connections)))
    return done


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def measure(
    name: str,
    process: psutil.Process,
    port: int,
    path: str,
    message: bytes,
    options: argparse.Namespace,
) -> None:
    """Loads one method and prints a line for each number of connections."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: Any = channel.unary_unary(path)
        for connections in options.connections:
            await load(lambda: method(message), connections, options.seconds / 4)
            before = cpu_s(process)
            done = await load(lambda: method(message), connections, options.seconds)
            show(name, connections, done, options.seconds, cpu_s(process) - before)


def measure_http(server: Server, process: psutil.Process, options: argparse.Namespace) -> None:
    """The same over HTTP, from threads with a connection each."""
    for connections in options.connections:
        counts = [0] * connections
        end = time.perf_counter() + options.seconds

        def ask(index: int, counts: list[int] = counts, end: float = end) -> None:
            client = http.client.HTTPConnection("127.0.0.1", server.ports["inference"])
            while time.perf_counter() < end:
                client.request("POST", "/predictions/noop", bytes(options.bytes))
                client.getresponse().read()
                counts[index] += 1

        before = cpu_s(process)
        threads = [threading.Thread(target=ask, args=(index,)) for index in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        show("HTTP", connections, sum(counts), options.seconds, cpu_s(process) - before)


def show(name: str, connections: int, done: int, seconds: float, used_s: float) -> None:
    rate, cost_us = done / seconds, used_s / max(done, 1) * 1e6
    print(f"{name:24} {connections:4} at once {rate:9.0f}/s {cost_us:7.0f} us of the server")


def bare(options: argparse.Namespace) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BARE], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        process, message = psutil.Process(server.pid), bytes(options.bytes)
        asyncio.run(measure("grpc.aio, bare", process, port, "/bare/Echo", message, options))
        server.terminate()


def ours(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        handler = Path(__file__).parent / "noop.py"
        pack = [command("archive-model"), "--model-name", "noop", "--version", "1.0"]
        subprocess.run(
            [*pack, "--handler", handler, "--export-path", work], check=True, capture_output=True
        )
        settings: dict[str, object] = {"default_workers_per_model": 1, "enable_grpc": "true"}
        settings |= {"grpc_inference_port": options.port, "grpc_management_port": options.port + 1}
        with Server(work, "noop.mar", work, settings) as server:
            url = server.url("/predictions/noop")
            server.wait_answer(Target(url, bytes(options.bytes), "application/octet-stream"))
            process = next(p for p in server.family() if "marserve.frontend" in p.cmdline())
            asked = PredictionsRequest(model_name="noop", input={"body": bytes(options.bytes)})
            message = asked.SerializeToString()
            asyncio.run(measure("ours", process, options.port, OURS, message, options))
            measure_http(server, process, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--port", type=int, default=7070)
    options = parser.parse_args()
    bare(options)
    ours(options)


if __name__ == "__main__":
    main()
