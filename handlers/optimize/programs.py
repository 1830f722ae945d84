"""Programs to try: made of the weights by ``archive-model export``, once for each kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from marserve.archiver.unpack import Archive, open_directory, walk_files
from marserve.handlers.optimize.candidates import Candidate
from marserve.handlers.optimize.process import TrialError

_COMMAND = "from marserve.archiver.cli import main; main()"
_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json")


class Programs:
    """Archives as directories, one a kind of program, made when they are first asked for.

    Args:
        archive: The unpacked original.
        scratch: Where to put them.
        keep_weights: Whether the weights stay beside a program.
        limit_s: Longest time that making one may take.
    """

    def __init__(self, archive: Archive, scratch: Path, keep_weights: bool, limit_s: float) -> None:
        self._archive = archive
        self._scratch = scratch
        self._flag = "--keep-weights" if keep_weights else "--drop-weights"
        self._limit_s = limit_s
        self._made: dict[tuple[str, str | None], Archive | TrialError] = {}

    def archive_for(self, candidate: Candidate) -> Archive:
        """Returns the archive that a mode can be loaded from.

        Raises:
            TrialError: If its program cannot be made here.
        """
        if not candidate.needs_export:
            return self._archive
        key = candidate.source, candidate.quantization
        if key not in self._made:
            try:
                self._made[key] = self._export(candidate)
            except TrialError as error:
                self._made[key] = error
        made = self._made[key]
        if isinstance(made, TrialError):
            raise made
        return made

    def _export(self, candidate: Candidate) -> Archive:
        if package := candidate.missing():
            raise TrialError(f"needs the package {package}, which is not installed")
        target = self._scratch / f"{candidate.source}-{candidate.quantization or 'whole'}"
        flags = ["--save-mode", candidate.source, "--output", str(target), self._flag]
        flags += ["--tolerance", "inf"]  # how near it comes is measured later, like for all modes
        flags += ["--quantization", candidate.quantization] if candidate.quantization else []
        command = [sys.executable, "-c", _COMMAND, "export", str(self._archive.directory), *flags]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self._limit_s)
        except subprocess.TimeoutExpired as error:
            raise TrialError(f"exporting took longer than {self._limit_s:g} s (--limit)") from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise TrialError(_reason(said))
        return open_directory(target)


def serialized_file(archive: Archive, candidate: Candidate) -> str | None:
    """Returns the file that a mode is loaded from; None for weights under their usual name."""
    name = archive.manifest.model.serialized_file
    if candidate.needs_export or (name and name.endswith(_WEIGHTS)):
        return name
    return None


def size_mb(archive: Archive) -> float:
    """Returns the size of an archive's files."""
    return sum(path.stat().st_size for _, path in walk_files(archive.directory)) / 1e6


def _reason(said: list[str]) -> str:
    told = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    return (told or said or ["the export failed"])[-1][:500]
