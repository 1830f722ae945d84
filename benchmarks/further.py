"""What a further worker of a loaded model costs: seconds until it is there, and memory of its own.

    python benchmarks/further.py --minilm DIRECTORY

Private memory is what is given back when the process ends (USS): without what it shares with its
siblings and its template. It is taken again after some requests, when pools have filled.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import click
import psutil
from faults import is_worker
from load import measure
from server import Server
from suites import all_suites

MIB = 1 << 20


def workers(server: Server, model: str) -> list[psutil.Process]:
    """Returns the worker processes of a model, oldest first."""
    found = [each for each in server.family() if is_worker(each, model)]
    return sorted(found, key=lambda process: process.create_time())


def scale(server: Server, model: str, count: int) -> float:
    """Returns how many seconds it took until so many workers were ready."""
    port = server.ports["management"]
    path = f"/models/{model}?min_worker={count}&max_worker={count}&synchronous=true"
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="PUT")
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60):
        return time.perf_counter() - began


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--suite", "name", default="minilm", show_default=True, help="Which model.")
@click.option("--turns", default=5, show_default=True, help="How often a worker is added.")
@click.option("--minilm", type=click.Path(exists=True, path_type=Path), help="Saved classifier.")
def main(name: str, turns: int, minilm: Path | None) -> None:
    """Prints a line."""
    suite = all_suites(minilm)[name]
    with tempfile.TemporaryDirectory(prefix="marserve-bench-") as folder:
        work = Path(folder)
        (store := work / "store").mkdir()
        suite.pack(store)
        with Server(store, f"{suite.name}.mar", work, suite.settings) as server:
            target = suite.payloads[0].target(server, suite.name)
            server.wait_answer(target)
            seconds, fresh, used = [], [], []
            for _ in range(turns):
                seconds.append(scale(server, suite.name, 2))
                new = workers(server, suite.name)[-1]
                fresh.append(new.memory_full_info().uss / MIB)
                measure(target, 4, 1)
                used.append(new.memory_full_info().uss / MIB)
                scale(server, suite.name, 1)
    click.echo(
        f"{name}, {turns} further workers: there after {statistics.median(seconds):.2f} s"
        f" (at most {max(seconds):.2f}); private memory {statistics.median(fresh):.0f} MB when"
        f" loaded (at most {max(fresh):.0f}), {statistics.median(used):.0f} MB after requests"
        f" (at most {max(used):.0f})"
    )


if __name__ == "__main__":
    sys.exit(main())
