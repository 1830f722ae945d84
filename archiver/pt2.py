"""What a ``.pt2`` file holds, told from its table of contents: a compiled package or a program."""

from __future__ import annotations

import zipfile
from pathlib import Path

from marserve.archiver.handler_options import SaveMode

_COMPILED, _PROGRAM = "/data/aotinductor/", "/models/"


def pt2_problem(path: Path, source: SaveMode) -> str | None:
    """Returns what is wrong with a file that a source needs; None if nothing is.

    Args:
        path: The file.
        source: What it should be, ``aot_inductor`` or ``exported``.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return "is no zip archive, as torch.export.save and AOTInductor write them"
    found = {
        "aot_inductor": any(_COMPILED in name for name in names),
        "exported": any(_PROGRAM in name for name in names),
    }
    if found[source]:
        return None
    if found["exported"]:
        return "holds a program of torch.export; expected save_mode: exported"
    if found["aot_inductor"]:
        return "holds a package of AOTInductor; expected save_mode: aot_inductor"
    return "holds neither a program of torch.export nor a package of AOTInductor"
