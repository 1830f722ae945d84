"""The archive that ``optimize`` writes: the winner, its configuration, and the report inside."""

from __future__ import annotations

import json
from pathlib import Path

from marserve.archiver.execution import SUFFIXES
from marserve.archiver.repack import Changes, repack
from marserve.archiver.unpack import Archive, walk_files
from marserve.handlers.optimize.candidates import Candidate
from marserve.handlers.optimize.programs import Programs, serialized_file
from marserve.handlers.optimize.report import Report
from marserve.handlers.runners.weights import STANDARD_NAMES

REPORT_NAME = "optimize-report.json"
CACHE_NAME = "compile-cache"
"""Folder of the archive with what ``torch.compile`` would compile again at the next start."""
_PROGRAMS = tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)


def rewrite(
    original: Archive,
    programs: Programs,
    winner: Candidate,
    report: Report,
    target: Path,
    scratch: Path,
    force: bool,
    compiled: Path | None = None,
) -> Path:
    """Writes the new archive.

    Args:
        original: The archive that was measured.
        programs: Has what the winner is loaded from.
        winner: The mode.
        report: Goes into the archive as ``REPORT_NAME``.
        target: Where to; its suffix tells the format.
        scratch: For the report's file.
        force: Whether an existing target is replaced.
        compiled: What ``torch.compile`` has kept, for a winner that is compiled when it is loaded.

    Raises:
        ArchiveError: If the target exists.
    """
    file = scratch / REPORT_NAME
    file.write_text(json.dumps(report.as_dict(), indent=2) + "\n")
    archive = programs.archive_for(winner)
    config, cached = winner.config(original.config.raw), _cached(compiled)
    if cached:
        config["handler"].setdefault("compile_cache", CACHE_NAME)
    changes = Changes(
        config=config,
        serialized_file=_serialized_file(archive, winner),
        files={REPORT_NAME: file, **cached},
        removed=frozenset() if winner.needs_export else _old_program(archive),
    )
    return repack(archive, changes, target, force=force)


def _cached(directory: Path | None) -> dict[str, Path]:
    files = walk_files(directory) if directory and directory.is_dir() else []
    return {f"{CACHE_NAME}/{name}": path for name, path in files if not name.endswith(".lock")}


def _serialized_file(archive: Archive, winner: Candidate) -> str | None:
    name = serialized_file(archive, winner)
    standard = (name for name in STANDARD_NAMES if (archive.directory / name).is_file())
    return name or next(standard, None)


def _old_program(archive: Archive) -> frozenset[str]:
    name = archive.manifest.model.serialized_file or ""
    if not name.endswith(_PROGRAMS):
        return frozenset()
    more = {name.removesuffix(".xml") + ".bin"} if name.endswith(".xml") else {f"{name}.data"}
    return frozenset({name, *more})
