"""The slow answers that one client sees: every request counts once.

    python benchmarks/tail.py
    python benchmarks/tail.py --other http://127.0.0.1:28280/inference

A no-op handler, one connection, one request at a time. wrk takes a stall for as many requests as
it would have sent meanwhile at its mean rate, so with equal stalls the faster of two servers gets
the worse percentiles; here nothing is corrected. With ``--other``, which may be given several
times, another server that gives raw bodies back is asked the same in turn.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import click
from faults import request_bytes
from load import Target
from server import Server, ServerError
from suites import all_suites

_SHARES = (0.5, 0.99, 0.999, 1.0)
_TITLE = "requests/s / p50 / p99 / p99.9 / most, ms"
_MAX_HEAD_BYTES = 16 << 10


def ask(target: Target, seconds: float) -> list[float]:
    """Returns how long each answer took, ms.

    Raises:
        ServerError: If an answer is not the request's body.
    """
    parts, request = urlsplit(target.url), request_bytes(target)
    took: list[float] = []
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = memoryview(bytearray(len(target.body) + _MAX_HEAD_BYTES))
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            connection.sendall(request)
            begin, end = _receive(connection, buffer)
            took.append((time.perf_counter() - began) * 1e3)
            if buffer[begin:end] != target.body:
                raise ServerError(f"{target.url}: not the body: {bytes(buffer[:200])!r}")
    return took


def _receive(connection: socket.socket, buffer: memoryview) -> tuple[int, int]:
    """Receives a whole answer; returns where its body begins and ends."""
    got = begin = end = 0
    while not end or got < end:
        count = connection.recv_into(buffer[got:])
        if not count:
            raise ServerError(f"too long, or broken off: {bytes(buffer[:got])[:200]!r}")
        got += count
        if not end:
            begin, end = _extent(bytes(buffer[: min(got, _MAX_HEAD_BYTES)]))
    return begin, end


def _extent(text: bytes) -> tuple[int, int]:
    """Returns where the body of an answer begins and ends; 0 and 0 while its head is not whole."""
    head, gap, _ = text.partition(b"\r\n\r\n")
    if not gap:
        return 0, 0
    size = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0].strip()
    if b" 200" not in head.partition(b"\r\n")[0] or not size.isdigit():
        raise ServerError(f"neither 200 nor of a known length: {head[:200]!r}")
    begin = len(head) + len(gap)
    return begin, begin + int(size)


def row(name: str, targets: list[Target], seconds: float, turns: int) -> str:
    """Returns a row of the table, of all answers in all turns."""
    found: list[list[float]] = [[] for _ in targets]
    for turn in range(turns):
        order = range(len(targets))
        for index in order if turn % 2 == 0 else reversed(order):
            found[index] += ask(targets[index], seconds)
    cells = []
    for took in map(sorted, found):
        shares = [took[int(share * (len(took) - 1))] for share in _SHARES]
        times = " / ".join(f"{share:.3f}" for share in shares)
        cells.append(f"{len(took) / seconds / turns:.0f} / {times}")
    return f"| {name} | {' | '.join(cells)} |"


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-s", "--seconds", default=3.0, show_default=True, help="Length of each load.")
@click.option("-t", "--turns", default=5, show_default=True, help="Loads of each server.")
@click.option("--other", multiple=True, help="URL of another server that gives bodies back.")
def main(seconds: float, turns: int, other: tuple[str, ...]) -> None:
    """Prints the table."""
    suite = all_suites()["noop"]
    with tempfile.TemporaryDirectory(prefix="marserve-bench-") as name:
        work = Path(name)
        (store := work / "store").mkdir()
        suite.pack(store)
        with Server(store, "noop.mar", work, suite.settings) as server:
            click.echo(f"| {_TITLE} | {' | '.join(('marserve', *other))} |")
            click.echo("| --- " * (2 + len(other)) + "|")
            for payload in suite.payloads[:2]:
                ours = payload.target(server, "noop")
                server.wait_answer(ours)
                targets = [ours, *(replace(ours, url=url) for url in other)]
                for target in targets:
                    ask(target, min(seconds, 0.5))
                click.echo(row(payload.name, targets, seconds, turns))


if __name__ == "__main__":
    sys.exit(main())
