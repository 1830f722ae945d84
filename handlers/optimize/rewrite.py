"""The archive that ``optimize`` writes: the winner, its configuration, and the report inside."""

from __future__ import annotations

import json
from pathlib import Path

from marserve.archiver.execution import SUFFIXES
from marserve.archiver.repack import Changes, repack
from marserve.archiver.unpack import Archive
from marserve.handlers.optimize.candidates import Candidate
from marserve.handlers.optimize.programs import Programs, serialized_file
from marserve.handlers.optimize.report import Report
from marserve.handlers.runners.weights import STANDARD_NAMES

REPORT_NAME = "optimize-report.json"
_PROGRAMS = tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)


def rewrite(
    original: Archive,
    programs: Programs,
    winner: Candidate,
    report: Report,
    target: Path,
    scratch: Path,
    force: bool,
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

    Raises:
        ArchiveError: If the target exists.
    """
    file = scratch / REPORT_NAME
    file.write_text(json.dumps(report.as_dict(), indent=2) + "\n")
    archive = programs.archive_for(winner)
    changes = Changes(
        config=winner.config(original.config.raw),
        serialized_file=_serialized_file(archive, winner),
        files={REPORT_NAME: file},
        removed=frozenset() if winner.needs_export else _old_program(archive),
    )
    return repack(archive, changes, target, force=force)


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
