"""What the server adds to an answer's time: answer time less the model's time for the same batch.

    python benchmarks/overhead.py

MiniLM, batch size 16 and 5 ms, one worker. All connections ask at the same moment; when all are
answered, they ask again. Each answer carries what tokenizing and running its batch took in the
handler, so the difference is the way there and back and the wait for company, the time included
that the client takes to send the requests of a round one by one. Answers whose batch was not the
whole round waited for another batch: they are counted apart.
"""

from __future__ import annotations

import select
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
from faults import request_bytes
from load import Target
from server import Server
from suites import MINILM, all_suites, archive_model, minilm_directory

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: how long the client waited, and what the model took for its batch."""

    took_ms: float
    model_ms: float
    batch: int

    @property
    def added_ms(self) -> float:
        """What the server added."""
        return self.took_ms - self.model_ms


def ask_together(sockets: list[socket.socket], request: bytes) -> list[Answer]:
    """Sends a request on every socket, and notes when each answer is there; reads them later."""
    by_fd = {each.fileno(): index for index, each in enumerate(sockets)}
    began, came = [0.0] * len(sockets), [0.0] * len(sockets)
    with select.epoll() as poll:
        for fd in by_fd:  # each tells once, so that what is noted is not read meanwhile
            poll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
        for index, each in enumerate(sockets):
            began[index] = time.perf_counter()
            each.sendall(request)
        left = len(sockets)
        while left:
            ready = poll.poll()
            now = time.perf_counter()
            left -= len(ready)
            for fd, _ in ready:
                came[by_fd[fd]] = now
    heads = [each.recv(1 << 16) for each in sockets]
    return [
        _answer((end - begin) * 1e3, head)
        for begin, end, head in zip(began, came, heads, strict=True)
    ]


def _answer(took_ms: float, head: bytes) -> Answer:
    lines = head.decode().lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    return Answer(took_ms, float(fields["x-model-ms"]), int(fields["x-batch"]))


def measure(port: int, target: Target, count: int, seconds: float) -> list[Answer]:
    """Returns the answers to rounds of so many requests at a time."""
    request, answers = request_bytes(target), list[Answer]()
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ask_together(sockets, request)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answers += ask_together(sockets, request)
    for each in sockets:
        each.close()
    return answers


def line(name: str, count: int, answers: list[Answer]) -> str:
    """Returns a row of the table."""
    together = [answer for answer in answers if answer.batch == count]
    if not together:
        return f"| {name} | {count} | none of {len(answers)} answers came with its whole round |"
    added = sorted(answer.added_ms for answer in together)
    model = statistics.median(answer.model_ms for answer in together)
    p50, p90 = (added[int(q * (len(added) - 1))] for q in (0.5, 0.9))
    share = 100 * len(together) / len(answers)
    return f"| {name} | {count} | {model:.2f} | {p50:.2f} | {p90:.2f} | {share:.0f} % |"


def pack(store: Path, model: Path | None) -> None:
    """Writes the archive."""
    config = store.parent / "timed.yaml"
    config.write_text(
        "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 16\nmaxBatchDelay: 5\n"
        f"handler:\n  model_name: {MINILM}\n  mode: sequence_classification\n"
        "  max_length: 150\n  num_labels: 2\n"
    )
    directory = minilm_directory(config) if model is None else model
    archive_model(
        *("--from-pretrained", directory, "--task", "sequence_classification"),
        *("--handler", HERE / "timed.py", "--model-name", "timed", "--version", "1.0"),
        *("--config-file", config, "--export-path", store, "--force"),
    )


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-s", "--seconds", default=5.0, show_default=True, help="Length of each load.")
@click.option("--minilm", type=click.Path(exists=True, path_type=Path), help="Saved classifier.")
def main(seconds: float, minilm: Path | None) -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory(prefix="marserve-bench-") as name:
        work = Path(name)
        (store := work / "store").mkdir()
        pack(store, minilm)
        with Server(store, "timed.mar", work, {}) as server:
            click.echo(
                "| text | together | model, ms | server adds, p50, ms | p90 | in one batch |"
            )
            click.echo("| --- | --- | --- | --- | --- | --- |")
            for payload in all_suites(minilm)["minilm_b16"].payloads:
                target = payload.target(server, "timed")
                server.wait_answer(target)
                for count in payload.connections:
                    answers = measure(server.ports["inference"], target, count, seconds)
                    click.echo(line(payload.name, count, answers))


if __name__ == "__main__":
    sys.exit(main())
