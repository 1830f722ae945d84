"""All modes of an archive measured by turns, so that a busy moment hits them alike."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from marserve.archiver.errors import ArchiveError, ConfigError
from marserve.archiver.execution import find_execution
from marserve.archiver.model_config import parse_model_config
from marserve.archiver.unpack import Archive
from marserve.handlers.optimize.accuracy import Tolerance, compare
from marserve.handlers.optimize.candidates import BASELINE, Candidate
from marserve.handlers.optimize.inputs import Cell
from marserve.handlers.optimize.process import TrialError, TrialProcess
from marserve.handlers.optimize.programs import Programs, serialized_file, size_mb
from marserve.handlers.optimize.report import Report, Result, Timing

_ROUNDS = 3
_PRODUCTS_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to measure.

    Args:
        cells: Shapes to time.
        samples: The model's own inputs, as JSON; None for random tokens.
        seconds: To time each mode at each cell.
        threads: Compute threads of a mode.
        limit_s: Longest time to make or load a mode.
        tolerance: How far a mode may be from eager float32.
    """

    cells: list[Cell]
    samples: Path | None = None
    seconds: float = 1.0
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    limit_s: float = 600.0
    tolerance: Tolerance = field(default_factory=Tolerance)


class Measurement:
    """Measures modes of an archive.

    Args:
        archive: Unpacked.
        programs: Makes what the modes are loaded from.
        plan: How.
        scratch: For inputs and outputs.
    """

    def __init__(self, archive: Archive, programs: Programs, plan: Plan, scratch: Path) -> None:
        self._archive = archive
        self._programs = programs
        self._plan = plan
        self._scratch = scratch
        self._stack = contextlib.ExitStack()
        self._live: dict[str, TrialProcess] = {}
        self._results: dict[str, Result] = {}

    def run(self, candidates: Mapping[str, Candidate]) -> Report:
        """Returns what was measured of all modes, eager among them.

        Raises:
            ArchiveError: If the model cannot even run eagerly.
        """
        with self._stack:
            self._try(BASELINE, partial(self._load, BASELINE, candidates[BASELINE]))
            report = self._begin()
            for name, candidate in _shown(candidates.items(), "loading"):
                if name != BASELINE:
                    self._try(name, partial(self._load, name, candidate))
            for name in _shown([*self._live], "comparing"):
                self._try(name, partial(self._compare, name, candidates[name]))
                self._eager()
            self._time_all(report)
            for name in [*self._live]:
                self._try(name, partial(self._weigh, name))
        return report

    def _begin(self) -> Report:
        eager = self._eager()
        samples = self._plan.samples
        try:
            made = eager.ask(
                "inputs",
                path=str(self._inputs),
                samples=samples and str(samples),
                cells=[[cell.rows, cell.tokens] for cell in self._plan.cells],
            )
        except TrialError as error:
            raise ArchiveError(str(error)) from error
        self._rows: dict[str, int] = made["rows"]
        return Report(
            machine=_machine(self._plan.threads),
            archive=self._archive.manifest.model.model_name,
            compared=made["compared"],
            samples=samples is not None,
            tolerance=asdict(self._plan.tolerance),
            results=self._results,
        )

    def _eager(self) -> TrialProcess:
        """Without it there is nothing to compare with."""
        if BASELINE not in self._live:
            raise ArchiveError(f"the model cannot run eagerly: {self._results[BASELINE].reason}")
        return self._live[BASELINE]

    @property
    def _inputs(self) -> Path:
        return self._scratch / "inputs.safetensors"

    def _try(self, name: str, step: Callable[[], None]) -> None:
        """A mode that fails at something is out; what it has so far stays in the table."""
        result = self._results.setdefault(name, Result())
        try:
            step()
        except (TrialError, ConfigError) as error:
            result.state, result.reason = "cannot run", str(error)
            result.timings = {}
            if trial := self._live.pop(name, None):
                trial.close()

    def _load(self, name: str, candidate: Candidate) -> None:
        archive, result = self._programs.archive_for(candidate), self._results[name]
        config = candidate.config(self._archive.config.raw)
        file = serialized_file(archive, candidate)
        find_execution(parse_model_config(config), file)
        if candidate.compiled:
            config["handler"]["compile_cache"] = str(compile_cache(self._scratch, name))
        job = self._scratch / f"{name}.json"
        manifest = archive.manifest.as_dict()
        plain = {
            "directory": str(archive.directory),
            "config": config,
            "serialized_file": file,
            "manifest": manifest,
            "threads": self._plan.threads,
        }
        job.write_text(json.dumps(plain, default=str))
        trial = TrialProcess(job, self._plan.threads, self._plan.limit_s)
        self._stack.callback(trial.close)
        self._live[name] = trial
        result.load_s, result.archive_mb = trial.load_s, size_mb(archive)

    def _compare(self, name: str, candidate: Candidate) -> None:
        trial, path = self._live[name], self._scratch / f"{name}.safetensors"
        trial.ask("read", path=str(self._inputs))
        trial.ask("outputs", path=str(path))
        accuracy = compare(self._scratch / f"{BASELINE}.safetensors", path)
        result = self._results[name]
        result.accuracy = accuracy
        problem = accuracy.problem(self._plan.tolerance, candidate.numbers)
        if problem and name != BASELINE:
            result.state, result.reason = "outside tolerance", problem

    def _time_all(self, report: Report) -> None:
        turns = [(cell, name) for _ in range(_ROUNDS) for cell in self._rows for name in self._live]
        for cell, name in _shown(turns, "timing"):
            if name in self._live:
                self._try(name, partial(self._time, cell, name))
            if name == BASELINE:
                self._products(report, cell)
            self._eager()

    def _time(self, cell: str, name: str) -> None:
        seconds = self._plan.seconds / _ROUNDS
        timing = self._results[name].timings.setdefault(cell, Timing(self._rows[cell], []))
        timing.times_ms.extend(self._live[name].ask("time", cell=cell, seconds=seconds))

    def _products(self, report: Report, cell: str) -> None:
        eager, seconds = self._eager(), min(_PRODUCTS_S, self._plan.seconds)
        found = eager.ask("products", seconds=seconds)
        report.products_gflops = max(report.products_gflops, found)
        if own := eager.ask("layer_products", cell=cell, seconds=seconds):
            report.layer_gflops[cell] = max(report.layer_gflops.get(cell, 0.0), own)

    def _weigh(self, name: str) -> None:
        self._results[name].memory_mb = self._live[name].ask("memory")


def compile_cache(scratch: Path, name: str) -> Path:
    """Returns where a mode keeps what it compiled when it was tried."""
    return scratch / f"{name}-cache"


def _machine(threads: int) -> dict[str, Any]:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.processor()),
        "threads": threads,
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "transformers", "marserve")},
    }


def _shown(items: Any, what: str) -> Iterator[Any]:
    """A bar on a terminal, nothing elsewhere."""
    yield from tqdm(list(items), desc=what, disable=None, leave=False)
