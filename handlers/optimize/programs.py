"""Programs to try: made of the weights by ``archive-model export``, once for each kind."""

from __future__ import annotations

import subprocess
import sys
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from marserve.archiver.digest import hash_file, hash_lines
from marserve.archiver.unpack import Archive, open_directory, walk_files
from marserve.handlers.cpu_features import cpu_features
from marserve.handlers.optimize.candidates import Candidate
from marserve.handlers.optimize.process import TrialError

_COMMAND = "from marserve.archiver.cli import main; main()"
_PACKAGES = ("marserve", "torch", "transformers", "onnx", "onnxruntime", "onnxscript", "openvino")
_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json")


class Programs:
    """Archives as directories, one a kind of program, made when they are first asked for.

    Args:
        archive: The unpacked original.
        directory: Where to put them; those of the same archive, samples and packages that are there
            already are taken.
        keep_weights: Whether the weights stay beside a program.
        limit_s: Longest time that making one may take.
        ranges: Inputs that int8 measures its ranges on; None for sentences of our own.
    """

    def __init__(
        self,
        archive: Archive,
        directory: Path,
        keep_weights: bool,
        limit_s: float,
        ranges: Path | None = None,
    ) -> None:
        self._archive = archive
        self._directory = directory
        self._weights = "keep" if keep_weights else "drop"
        self._limit_s = limit_s
        self._ranges = ranges
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

    @cached_property
    def _origin(self) -> str:
        """What a program depends on: another one of these is another program."""
        files = [*walk_files(self._archive.directory)]
        files += [("ranges", self._ranges)] if self._ranges else []
        digests = [f"{name} {hash_file(path)}" for name, path in files]
        packages = [f"{name} {version(name)}" for name in _PACKAGES if _is_installed(name)]
        return hash_lines([*digests, *packages, *cpu_features(), self._weights])

    def _export(self, candidate: Candidate) -> Archive:
        if package := candidate.missing():
            raise TrialError(f"needs the package {package}, which is not installed")
        kind = f"{candidate.source}-{candidate.quantization or 'whole'}"
        target = self._directory / f"{kind}-{self._origin[:16]}"
        if target.exists():
            return open_directory(target)
        flags = ["--save-mode", candidate.source, "--output", str(target)]
        flags += [f"--{self._weights}-weights"]
        flags += ["--drafts", str(self._directory / f"drafts-{self._origin[:16]}")]
        flags += ["--tolerance", "inf"]  # how near it comes is measured later, like for all modes
        flags += ["--quantization", candidate.quantization] if candidate.quantization else []
        flags += ["--samples", str(self._ranges)] if self._ranges else []
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


def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def _reason(said: list[str]) -> str:
    told = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    return (told or said or ["the export failed"])[-1][:500]
