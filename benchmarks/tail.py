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
import statistics
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

_SHARES = (0.5, 0.99, 0.999)
_TITLE = "requests/s / p50 / p99 / p99.9, ms"


def ask(target: Target, seconds: float) -> list[float]:
    """Returns how long each answer took, ms, sorted.

    Raises:
        ServerError: If the server closes the connection.
    """
    parts, request = urlsplit(target.url), request_bytes(target)
    took: list[float] = []
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = memoryview(bytearray(len(target.body) + (64 << 10)))
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            connection.sendall(request)
            _receive(connection, buffer)
            took.append((time.perf_counter() - began) * 1e3)
    return sorted(took)


def _receive(connection: socket.socket, buffer: memoryview) -> None:
    """Receives a whole answer."""
    got = end = 0
    while not end or got < end:
        count = connection.recv_into(buffer[got:])
        if not count:
            raise ServerError(f"closed by the server: {bytes(buffer[:got])[:200]!r}")
        got += count
        if not end:
            end = _end(bytes(buffer[: min(got, 8 << 10)]))


def _end(text: bytes) -> int:
    """Returns how many bytes an answer has; 0 while its head is not whole."""
    head, line, _ = text.partition(b"\r\n\r\n")
    if not line:
        return 0
    size = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
    return len(head) + len(line) + int(size)


def line(name: str, targets: list[Target], seconds: float, turns: int) -> str:
    """Returns a row of the table: medians of the turns of each server."""
    found: list[list[list[float]]] = [[] for _ in targets]
    for turn in range(turns):
        order = range(len(targets))
        for index in order if turn % 2 == 0 else reversed(order):
            took = ask(targets[index], seconds)
            shares = [took[int(share * (len(took) - 1))] for share in _SHARES]
            found[index].append([len(took) / seconds, *shares])
    cells = []
    for each in found:
        rate, *shares = (statistics.median(values) for values in zip(*each, strict=True))
        cells.append(f"{rate:.0f} / " + " / ".join(f"{share:.3f}" for share in shares))
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
            click.echo(f"| {_TITLE} | marserve |{' other |' * len(other)}")
            click.echo("| --- " * (2 + len(other)) + "|")
            for payload in suite.payloads[:2]:
                ours = payload.target(server, "noop")
                server.wait_answer(ours)
                targets = [ours, *(replace(ours, url=url) for url in other)]
                for target in targets:
                    ask(target, min(seconds, 0.5))
                click.echo(line(payload.name, targets, seconds, turns))


if __name__ == "__main__":
    sys.exit(main())
