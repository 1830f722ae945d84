"""Measures how soon a worker is ready: eager, AOTInductor, torch.compile with and without cache.

    python benchmarks/cold_start.py --prepare      compiles MiniLM ahead of time; a minute or two
    python benchmarks/cold_start.py                all kinds of start, by turns; two minutes
    python benchmarks/cold_start.py --skip-first   without the first compile, which takes longest

Each start is a process of its own, from its command until it is ready. "load" leaves out what a
worker shares with its template: the imports. Table and JSON go to the terminal and to --out.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from modes import packed
from suites import archive_model

from marserve.archiver.unpack import open_directory
from marserve.handlers.optimize.candidates import Candidate
from marserve.handlers.optimize.process import TrialProcess

LIMIT_S = 600.0
EAGER, PACKAGE, FIRST, AGAIN, MEANWHILE = (
    "eager",
    "aot_inductor",
    "compiled, first start",
    "compiled, with the cache",
    "compiled in the background, first start",
)


def start(archive: Path, mode: Candidate, more: dict[str, Any], threads: int) -> dict[str, float]:
    """Loads an archive's model in a new process; returns seconds."""
    opened = open_directory(archive)
    config = mode.config(opened.config.raw)
    config["handler"] |= more
    file = opened.manifest.model.serialized_file if mode.needs_export else None
    with tempfile.TemporaryDirectory() as scratch:
        job = Path(scratch) / "job.json"
        plain = {"directory": str(archive), "config": config, "serialized_file": file}
        manifest = opened.manifest.as_dict()
        job.write_text(json.dumps({**plain, "manifest": manifest, "threads": threads}))
        began = time.perf_counter()
        trial = TrialProcess(job, threads, LIMIT_S)
        wall_s = time.perf_counter() - began
        trial.close()
    return {"load_s": trial.load_s, "wall_s": wall_s}


def package(archive: Path, out: Path) -> Path:
    """Returns the archive with a compiled package, made if it is missing."""
    target = out / "archives" / f"{archive.name}-aot"
    if not target.exists():
        archive_model("export", archive, "--save-mode", PACKAGE, "--output", target)
    return target


def measure(archive: Path, out: Path, turns: int, threads: int, first: bool) -> dict[str, Any]:
    """Starts each kind by turns; the first compile once."""
    made, cache = package(archive, out), out / "compile-cache"
    compiled, kept = Candidate(compiled=True), {"compile_cache": str(cache.resolve())}
    seen: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as empty:
        if first:
            shutil.rmtree(cache, ignore_errors=True)
            seen[FIRST] = [start(archive, compiled, kept, threads)]
        for _ in range(turns):
            away = {"compile_cache": empty, "compile_in_background": True}
            for name, source, mode, more in (
                (EAGER, archive, Candidate(), {}),
                (PACKAGE, made, Candidate("aot_inductor"), {}),
                (AGAIN, archive, compiled, kept),
                (MEANWHILE, archive, compiled, away),
            ):
                seen.setdefault(name, []).append(start(source, mode, more, threads))
    return {
        name: {key: statistics.median(run[key] for run in runs) for key in ("load_s", "wall_s")}
        for name, runs in seen.items()
    }


def table(found: dict[str, Any]) -> str:
    """Returns markdown, with ratios to eager and to the first compile."""
    lines = ["| | load, s | from the command to ready, s | |", "| --- | --- | --- | --- |"]
    for name, times in found.items():
        base = FIRST if name == AGAIN else EAGER
        ratio = ""
        if name != base and base in found:
            own, all_of_it = (times[key] / found[base][key] for key in ("load_s", "wall_s"))
            ratio = f"{own:.2f} and {all_of_it:.2f} of {base}"
        lines.append(f"| {name} | {times['load_s']:.2f} | {times['wall_s']:.2f} | {ratio} |")
    return "\n".join(lines)


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--prepare", is_flag=True, help="Only make the archives.")
@click.option("--skip-first", is_flag=True, help="Take the cache of an earlier run.")
@click.option("--turns", default=3, show_default=True, help="Starts of each kind.")
@click.option("--threads", default=2, show_default=True, help="Compute threads.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(__file__).with_name("results"),
    help="Where everything goes. [default: benchmarks/results]",
)
def main(prepare: bool, skip_first: bool, turns: int, threads: int, out: Path) -> None:
    """Measures and reports."""
    out.mkdir(parents=True, exist_ok=True)
    archive, _ = packed("minilm", out)
    package(archive, out)
    if prepare:
        return
    found = measure(archive, out, turns, threads, not skip_first)
    (out / "cold-start.json").write_text(json.dumps(found, indent=2) + "\n")
    (out / "cold-start.md").write_text(table(found) + "\n")
    click.echo(f"{table(found)}\n\nwritten to {out}")


if __name__ == "__main__":
    main()
