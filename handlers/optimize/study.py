"""One run of ``optimize`` or ``benchmark``: from the flags to the table, the files, the archive."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch

from marserve.archiver.errors import ArchiveError
from marserve.handlers.export.archive import opened
from marserve.handlers.export.samples import own_samples
from marserve.handlers.optimize import choose
from marserve.handlers.optimize.accuracy import Tolerance
from marserve.handlers.optimize.candidates import CANDIDATES, choose_candidates
from marserve.handlers.optimize.command import Target
from marserve.handlers.optimize.inputs import Cell
from marserve.handlers.optimize.measure import Measurement, Plan, compile_cache
from marserve.handlers.optimize.plot import check_plotting, plot
from marserve.handlers.optimize.programs import Programs
from marserve.handlers.optimize.report import Report
from marserve.handlers.optimize.rewrite import rewrite
from marserve.handlers.optimize.samples import divide


class Study:
    """Measures an archive's modes, and tells of them.

    Args:
        flags: Those that both commands have, and ``keep_weights``.

    Attributes:
        report: What was measured.

    Raises:
        ArchiveError: If a flag or the archive is wrong.
    """

    report: Report

    def __init__(self, flags: dict[str, Any]) -> None:
        self._flags = flags
        names = [name.strip() for name in (flags["modes"] or "").split(",") if name.strip()]
        self._named = {*names}
        if flags["plot_file"]:
            check_plotting()
        plan = _plan(flags)
        with contextlib.ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="marserve-")))
            self._archive = stack.enter_context(opened(flags["archive"]))
            on_gpu = torch.cuda.is_available() and self._archive.config.device_type != "cpu"
            self._candidates = choose_candidates(names, flags["allow_quantized"], on_gpu)
            own = own_samples(self._archive.directory)
            samples = divide(flags["sample"] or own, scratch)
            self._plan = replace(plan, samples=samples.compared)
            self._programs = Programs(
                self._archive,
                flags["programs"] or scratch,
                flags.get("keep_weights", True),
                flags["limit"],
                samples.ranges,
            )
            self._scratch = scratch
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Removes what was needed only meanwhile."""
        self._stack.close()

    @property
    def failed(self) -> bool:
        """Whether a mode is outside the tolerance, or one that the user named cannot run."""
        return any(
            result.state == "outside tolerance"
            or (result.state == "cannot run" and name in self._named)
            for name, result in self.report.results.items()
        )

    def measure(self) -> None:
        """Measures all modes.

        Raises:
            ArchiveError: If the model cannot even run eagerly.
        """
        measurement = Measurement(self._archive, self._programs, self._plan, self._scratch)
        self.report = measurement.run(self._candidates)

    def choose(self, target: Target) -> str:
        """Returns the best mode, which the report then names."""
        self.report.target = target
        self.report.winner = choose.choose(self.report, target)
        return self.report.winner

    def tell(self) -> None:
        """Prints the table, and writes the files that the flags ask for."""
        click.echo(self.report.render())
        if path := self._flags["json_file"]:
            path.write_text(json.dumps(self.report.as_dict(), indent=2) + "\n")
        if path := self._flags["plot_file"]:
            plot(self.report, path)

    def write(self, target: Path, force: bool) -> None:
        """Writes the archive with the chosen mode."""
        name = str(self.report.winner)
        cache = compile_cache(self._scratch, name)
        files = self._archive, self._programs, CANDIDATES[name], self.report, target
        rewrite(*files, self._scratch, force, cache)


def _plan(flags: dict[str, Any]) -> Plan:
    batches, lengths = _numbers(flags, "batches"), _numbers(flags, "lengths")
    cells = [Cell(rows, tokens) for rows in batches for tokens in lengths]
    cells += [Cell(flags["real_rows"], None)] if flags["real_rows"] else []
    if not cells:
        raise ArchiveError("--batches, --lengths, --real-rows: leave nothing to measure")
    if flags["sample"] and not flags["sample"].is_file():
        raise ArchiveError(f"--sample: {flags['sample']}: there is no such file")
    more = {"threads": flags["threads"]} if flags["threads"] else {}
    return Plan(
        cells=cells,
        seconds=flags["seconds"],
        limit_s=flags["limit"],
        tolerance=Tolerance(flags["tolerance"], flags["agreement"]),
        **more,
    )


def _numbers(flags: dict[str, Any], name: str) -> list[int]:
    parts = [part.strip() for part in flags[name].split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ArchiveError(f"--{name}: expected numbers above 0 with commas, got {flags[name]!r}")
    return [int(part) for part in parts]
