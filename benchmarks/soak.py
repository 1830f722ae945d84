"""Whether memory, descriptors and files stay level: many requests, then many loads and unloads.

    python benchmarks/soak.py --requests 200000 --cycles 200 --out soak

A no-op model is asked over and over, then a second one is registered and unregistered again and
again while the first goes on serving. In between, every process of the server is measured. The
slopes leave the first third of each part out, in which caches and memory pools fill. Writes
``soak.json`` and, if matplotlib is there, ``soak.png``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from load import Target, request_all
from server import Server, ServerError

BENCHMARKS = Path(__file__).resolve().parent
SAMPLES = 40
CONNECTIONS = 16
BODY = b"x" * 1024
WARM_UP = 1 / 3


@dataclass(frozen=True, slots=True)
class Sample:
    """All processes of the server at one time.

    Args:
        done: Requests answered, or cycles done.
        server_mb: Resident memory of the server process.
        workers_mb: Resident memory of its workers and templates.
        pss_mb: Memory of all of them, shared pages counted once.
        descriptors: Open file descriptors of all of them.
        processes: How many there are.
        shm: Files in /dev/shm that were not there before.
        files: Files in the temporary folder.
    """

    part: str
    done: int
    server_mb: float
    workers_mb: float
    pss_mb: float
    descriptors: int
    processes: int
    shm: int
    files: int


class Soak:
    """One run.

    Args:
        server: Running, with the model ``noop``.
        work: Its temporary folder.
        limit_s: After so long, the part at hand ends early.
    """

    def __init__(self, server: Server, work: Path, limit_s: float) -> None:
        self._server, self._work = server, work
        self._end = time.monotonic() + limit_s
        self._shm = set(os.listdir("/dev/shm"))
        self._target = Target(server.url("/predictions/noop"), BODY)
        self.samples: list[Sample] = []
        self.bad = 0

    def requests(self, count: int) -> None:
        """Asks so many times, over kept-open connections."""
        self.measure("requests", 0)
        for done in _steps(count):
            self._ask(done - self.samples[-1].done)
            self.measure("requests", done)
            if time.monotonic() > self._end:
                return

    def cycles(self, count: int) -> None:
        """Registers and unregisters a model so many times, with some requests in between."""
        self.measure("cycles", 0)
        for done in _steps(count):
            for _ in range(done - self.samples[-1].done):
                register = "/models?url=noop.mar&model_name=other&initial_workers=1"
                self._manage("POST", register)
                self._ask(CONNECTIONS)
                self._manage("DELETE", "/models/other")
            self.measure("cycles", done)
            if time.monotonic() > self._end:
                return

    def measure(self, part: str, done: int) -> None:
        """Takes a sample."""
        server, *others = self._server.family()
        memory = [process.memory_full_info() for process in (server, *others)]
        resident = [each.rss / 2**20 for each in memory]
        self.samples.append(
            Sample(
                part,
                done,
                round(resident[0], 2),
                round(sum(resident[1:]), 2),
                round(sum(each.pss for each in memory) / 2**20, 2),
                sum(process.num_fds() for process in (server, *others)),
                len(others) + 1,
                len(set(os.listdir("/dev/shm")) - self._shm),
                sum(len(files) for _, _, files in os.walk(self._work / "tmp")),
            )
        )

    def _ask(self, count: int) -> None:
        self.bad += asyncio.run(request_all(self._target, CONNECTIONS, count))

    def _manage(self, method: str, path: str) -> None:
        url = f"http://127.0.0.1:{self._server.ports['management']}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60):
                pass
        except urllib.error.HTTPError as error:
            log = (self._work / "serve.log").read_text()[-3000:]
            raise ServerError(f"{method} {path}: {error.read().decode()}\n{log}") from error


def slopes(samples: Sequence[Sample], per: int) -> dict[str, float]:
    """Returns how much each measure grows per so many requests or cycles, by least squares."""
    settled = samples[int(len(samples) * WARM_UP) :]
    columns = ("server_mb", "workers_mb", "pss_mb", "descriptors", "processes", "shm", "files")
    at = [sample.done for sample in settled]
    return {name: per * _slope(at, [getattr(s, name) for s in settled]) for name in columns}


def plot(samples: Sequence[Sample], path: Path) -> None:
    """Draws memory and descriptors over both parts."""
    try:
        from matplotlib import pyplot
    except ImportError:
        print("matplotlib is not installed: no plot")
        return
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), sharey=True)
    for axis, part in zip(axes, ("requests", "cycles"), strict=True):
        chosen = [sample for sample in samples if sample.part == part]
        at = [sample.done for sample in chosen]
        for name, label in (("server_mb", "server, RSS"), ("pss_mb", "all, PSS")):
            axis.plot(at, [getattr(sample, name) for sample in chosen], label=f"{label} (MB)")
        axis.plot(at, [sample.descriptors for sample in chosen], label="descriptors")
        axis.set_xlabel(part if part == "requests" else "load and unload cycles")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the soak; returns 1 if a request failed or something was left behind."""
    parser = argparse.ArgumentParser(description="Requests, then loads and unloads: what grows?")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for the whole run")
    parser.add_argument("--out", type=Path, default=Path("soak"), help="path without its suffix")
    options = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="marserve-soak-"))
    try:
        soak, left = _run(work, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report: dict[str, Any] = {"bad": soak.bad, "left": left, "slopes": {}}
    for part, per in (("requests", 100_000), ("cycles", 100)):
        chosen = [sample for sample in soak.samples if sample.part == part]
        report["slopes"][f"per {per} {part}"] = found = slopes(chosen, per)
        print(f"{chosen[-1].done} {part}; growth per {per}:")
        for name, value in found.items():
            first, last = getattr(chosen[0], name), getattr(chosen[-1], name)
            print(f"  {name:12} {value:+9.3f}   from {first:g} to {last:g}")
    print(f"failed requests: {soak.bad}; left in the temporary folder and /dev/shm: {left}")
    report["samples"] = [asdict(sample) for sample in soak.samples]
    options.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    plot(soak.samples, options.out.with_suffix(".png"))
    return int(bool(soak.bad or left))


def _run(work: Path, options: argparse.Namespace) -> tuple[Soak, list[str]]:
    store = work / "store"
    store.mkdir()
    (work / "tmp").mkdir()
    packer = [str(Path(sys.executable).with_name("archive-model")), "--model-name", "noop"]
    packer += ["--version", "1.0", "--handler", str(BENCHMARKS / "noop.py")]
    psutil.Popen([*packer, "--export-path", str(store)]).wait()
    settings: dict[str, object] = {"enable_model_api": "true", "default_workers_per_model": 1}
    os.environ["LOG_LOCATION"] = str(work / "logs")
    with Server(store, "noop.mar", work, settings, work / "tmp") as server:
        server.wait_answer(Target(server.url("/predictions/noop"), BODY))
        soak = Soak(server, work, options.limit)
        soak.requests(options.requests)
        soak.cycles(options.cycles)
    left = [str(path.relative_to(work)) for path in (work / "tmp").rglob("*")]
    return soak, left + sorted(set(os.listdir("/dev/shm")) - soak._shm)


def _steps(count: int) -> list[int]:
    """Cuts a part into steps of about the same size."""
    steps = min(SAMPLES, count)
    return [count * step // steps for step in range(1, steps + 1)]


def _slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    if len(xs) < 2:
        return 0.0
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((a - x) ** 2 for a in xs)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread


if __name__ == "__main__":
    sys.exit(main())
