"""Closed-loop load on one URL: wrk where it is installed, an asyncio client elsewhere.

The asyncio client is the slower of the two, so its numbers are bounded by the client from a few
thousand requests a second on; a result says which one made it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


class LoadError(Exception):
    """The load could not be made, or the server broke the protocol."""


@dataclass(frozen=True, slots=True)
class Target:
    """One request, made again and again.

    Args:
        url: Where it goes, ``http://host:port/path``.
        body: What it carries.
        content_type: Media type of the body.
        headers: More of them.
    """

    url: str
    body: bytes
    content_type: str = "application/octet-stream"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def header_lines(self) -> list[str]:
        """All headers that say something of the body, as lines."""
        pairs = (("Content-Type", self.content_type), *self.headers)
        return [f"{name}: {value}" for name, value in pairs]


@dataclass(frozen=True, slots=True)
class Load:
    """What a load measured.

    Args:
        requests: Answers received.
        seconds: How long it took.
        p50_ms: Median latency.
        p99_ms: 99th percentile of latency.
        bad: Answers other than 2xx or 3xx, and broken connections.
        client: ``wrk`` or ``asyncio``.
    """

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    bad: int
    client: str

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


def measure(target: Target, connections: int, seconds: int) -> Load:
    """Loads the target over kept-open connections, each with one request in flight.

    Raises:
        LoadError: If no measurement came out.
    """
    if shutil.which("wrk"):
        return _measure_wrk(target, connections, seconds)
    return asyncio.run(_measure_asyncio(target, connections, seconds))


def _measure_wrk(target: Target, connections: int, seconds: int) -> Load:
    script = Path(__file__).with_name("load.lua")
    with tempfile.NamedTemporaryFile() as body:
        body.write(target.body)
        body.flush()
        run = subprocess.run(
            [
                *("wrk", "-t1", f"-c{connections}", f"-d{seconds}s"),
                *("--timeout", "30s", "-s", str(script), target.url),
            ],
            env={
                **os.environ,
                "LOAD_BODY": body.name,
                "LOAD_HEADERS": "\n".join(target.header_lines),
            },
            capture_output=True,
            text=True,
            timeout=seconds + 60,
        )
    line = run.stdout.rstrip().rpartition("\n")[2]
    if run.returncode or not line.startswith("{"):
        raise LoadError(f"wrk gave no result: {run.stderr or run.stdout}")
    return Load(**json.loads(line), client="wrk")


async def _measure_asyncio(target: Target, connections: int, seconds: int) -> Load:
    latencies: list[float] = []
    began = time.perf_counter()
    bad = await asyncio.gather(
        *(_one_connection(target, began + seconds, latencies) for _ in range(connections))
    )
    took = time.perf_counter() - began
    if not latencies:
        raise LoadError(f"no answer from {target.url} in {seconds:g} s")
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * q)] * 1e3 for q in (0.50, 0.99))
    return Load(len(latencies), took, p50, p99, sum(bad), "asyncio")


async def request_all(target: Target, connections: int, count: int) -> int:
    """Makes a number of requests over several connections; returns how many went wrong."""
    shares = [count // connections + (n < count % connections) for n in range(connections)]
    latencies: list[float] = []
    end = float("inf")
    loads = (_one_connection(target, end, latencies, share) for share in shares if share)
    return sum(await asyncio.gather(*loads))


async def _one_connection(
    target: Target, end: float, latencies: list[float], count: float = float("inf")
) -> int:
    url = urlsplit(target.url)
    head = (
        f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\n"
        f"Content-Length: {len(target.body)}\r\n" + "\r\n".join([*target.header_lines, "", ""])
    )
    request, bad, made = head.encode() + target.body, 0, 0
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    while made < count and (began := time.perf_counter()) < end:
        made += 1
        writer.write(request)
        bad += await _read_status(reader) >= 400
        latencies.append(time.perf_counter() - began)
    writer.close()
    return bad


async def _read_status(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, found, length = head.partition(b"\r\ncontent-length:")
    if not found:
        raise LoadError("the answer has no Content-Length")
    await reader.readexactly(int(length.partition(b"\r\n")[0]))
    return int(head.split(b" ", 2)[1])
