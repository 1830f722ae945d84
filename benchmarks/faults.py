"""What a client sees when too much comes, and when the only worker is killed.

    python benchmarks/faults.py                       both, with a no-op handler
    python benchmarks/faults.py --suite minilm        the kill, with MiniLM

Overload: a queue of 10 places and a batch of 20 ms; ten times as many connections ask again as soon
as they are answered, or 200 ms after a refusal, from a process of their own; a single client that
does nothing else probes how soon it is refused. Kill: 8 connections ask without a pause, the only
worker gets SIGKILL; counted are failed requests and the time until the next right answer.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import click
import psutil
from load import Target
from server import Server
from suites import Payload, Suite, all_suites, archive_model

QUEUE, WORK_MS = 10, 20
CLIENTS = 10 * (QUEUE + 1)
PAUSE_S = 0.2
_CROWD_START_S = 2.0
_LET_IN_S = QUEUE * WORK_MS / 2000
KILL_CLIENTS = 8
SLOW_HANDLER = f"""import time

def handle(data, context):
    time.sleep({WORK_MS / 1000})
    return ["done"] * len(data) if data else None
"""

Answer = tuple[float, float, int]
"""When it came (``time.monotonic``), how long it took (s), and its status; 0 for none."""


def request_bytes(target: Target) -> bytes:
    """Returns a request as it goes over the wire."""
    path = "/" + target.url.split("/", 3)[3]
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: {target.content_type}\r\n"
    return f"{head}Content-Length: {len(target.body)}\r\n\r\n".encode() + target.body


async def ask_on(
    target: Target, port: int, until: float, pause_s: float, out: list[Answer]
) -> None:
    """Asks over one connection until a time, and pauses after each refusal."""
    request = request_bytes(target)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (began := time.monotonic()) < until:
        status = 0
        try:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            size = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(size)
            status = int(answer.split()[1])
        except (OSError, EOFError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        now = time.monotonic()
        out.append((now, now - began, status))
        if status != 200:
            await asyncio.sleep(pause_s)
    writer.close()


async def load(
    target: Target, port: int, count: int, seconds: float, pause_s: float
) -> list[Answer]:
    """Returns all answers of so many connections, in the order in which they came."""
    out: list[Answer] = []
    until = time.monotonic() + seconds
    await asyncio.gather(*(ask_on(target, port, until, pause_s, out) for _ in range(count)))
    return sorted(out)


def overload(seconds: float) -> str:
    """Returns a line on refusals and answers at ten times capacity."""
    with tempfile.TemporaryDirectory(prefix="marserve-bench-") as name:
        work = Path(name)
        (store := work / "store").mkdir()
        (work / "slow.py").write_text(SLOW_HANDLER)
        (work / "slow.yaml").write_text(f"minWorkers: 1\nmaxWorkers: 1\njobQueueSize: {QUEUE}\n")
        archive_model(
            *("--model-name", "slow", "--version", "1.0", "--handler", work / "slow.py"),
            *("--config-file", work / "slow.yaml", "--export-path", store),
        )
        with Server(store, "slow.mar", work, {}) as server:
            target = Target(server.url("/predictions/slow"), b"x")
            server.wait_answer(target)
            port = server.ports["inference"]
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as crowd:
                loading = crowd.submit(crowd_of, target, port, seconds)
                time.sleep(_CROWD_START_S)
                refused = probe(target, port, seconds / 2)
                answers = loading.result()
    served = sorted(took * 1e3 for _, took, status in answers if status == 200)
    statuses = sorted({status for *_, status in answers})
    count = sum(status != 200 for *_, status in answers)
    return (
        f"overload: {len(served)} answered, p50 {statistics.median(served):.0f} ms,"
        f" p99 {served[int(0.99 * len(served))]:.0f} ms; {count} refused; statuses {statuses};"
        f" {len(refused)} refusals of one prober, p50 {statistics.median(refused):.2f} ms,"
        f" p90 {refused[int(0.9 * len(refused))]:.2f} ms"
    )


def crowd_of(target: Target, port: int, seconds: float) -> list[Answer]:
    """Loads the server at ten times its capacity; runs in a process of its own."""
    return asyncio.run(load(target, port, CLIENTS, seconds + _CROWD_START_S, PAUSE_S))


def probe(target: Target, port: int, seconds: float) -> list[float]:
    """Returns how long each refusal of one blocking client took, ms, sorted."""
    request = request_bytes(target)
    took: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        # Who is let in waits for a multiple of that, and gives its place up instead.
        with (
            suppress(TimeoutError),
            socket.create_connection(("127.0.0.1", port), timeout=_LET_IN_S) as connection,
        ):
            while (began := time.monotonic()) < until:
                connection.sendall(request)
                if connection.recv(1 << 16).startswith(b"HTTP/1.1 503 "):
                    took.append((time.monotonic() - began) * 1e3)
                time.sleep(0.005)
    return sorted(took)


def kill(suite: Suite, payload: Payload, seconds: float) -> str:
    """Returns a line on what was lost, and for how long, when the only worker was killed."""
    with tempfile.TemporaryDirectory(prefix="marserve-bench-") as name:
        work = Path(name)
        (store := work / "store").mkdir()
        suite.pack(store)
        with Server(store, f"{suite.name}.mar", work, suite.settings) as server:
            target = payload.target(server, suite.name)
            server.wait_answer(target)
            answers, killed = asyncio.run(kill_amid(server, target, suite.name, seconds))
    failed = sum(status != 200 for *_, status in answers)
    gap = max(later[0] - earlier[0] for earlier, later in pairwise(answers))
    again = min(at for at, took, status in answers if at - took > killed and status == 200)
    return (
        f"kill, {suite.name}, {payload.name}: {len(answers)} answers, {failed} failed; longest"
        f" silence {gap:.3f} s; first answer to a request made later {again - killed:.3f} s after"
    )


async def kill_amid(
    server: Server, target: Target, model: str, seconds: float
) -> tuple[list[Answer], float]:
    """Loads the server, and kills its worker in the middle; returns the answers, and when."""
    port = server.ports["inference"]
    loading = asyncio.create_task(load(target, port, KILL_CLIENTS, seconds, 0.0))
    await asyncio.sleep(seconds / 3)
    worker = next(p for p in server.family() if is_worker(p, model))
    killed = time.monotonic()
    worker.kill()
    return await loading, killed


def is_worker(process: psutil.Process, model: str) -> bool:
    """Tells by its title whether a process is a worker of a model, rather than a template."""
    line = " ".join(process.cmdline())
    return "W-" in line and model in line


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--suite", "name", default="noop", show_default=True, help="Whose worker is killed.")
@click.option("-s", "--seconds", default=5.0, show_default=True, help="Length of each load.")
@click.option("--minilm", type=click.Path(exists=True, path_type=Path), help="Saved classifier.")
def main(name: str, seconds: float, minilm: Path | None) -> None:
    """Prints a line for each fault."""
    suites = all_suites(minilm)
    if name not in suites:
        raise click.BadParameter(f"no suite {name!r}; there are {', '.join(suites)}")
    click.echo(overload(seconds))
    click.echo(kill(suites[name], suites[name].payloads[0], seconds))


if __name__ == "__main__":
    main()
