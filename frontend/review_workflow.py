"""A workflow archive reviewed: its specification by line, its functions, the archives it names."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from marserve.archiver.errors import ConfigError, MarserveError
from marserve.archiver.findings import Finding, from_messages, key_line
from marserve.archiver.plain_file import MAX_BYTES
from marserve.archiver.review import review_code
from marserve.archiver.workflow import Node
from marserve.archiver.workflow_archive import unpack_workflow
from marserve.frontend.urls import is_url

_AGAIN = "pack it again with archive-workflow"


def review_workflow(path: Path, shim: Path) -> list[Finding]:
    """Returns what is wrong in a ``.war``; nothing is run.

    Args:
        path: The archive; the models of its nodes are looked for beside it.
        shim: Where the modules of ``ts`` are.
    """
    with tempfile.TemporaryDirectory(prefix="marserve-") as scratch:
        root = Path(scratch, "workflow")
        try:
            archive = unpack_workflow(path, root)
        except ConfigError as error:
            found = from_messages([str(error)], "error", _specifications(path))
            named = [each for each in found if each.file != path.name]
            return named or [Finding("error", str(error), _AGAIN, path.name)]
        except (MarserveError, OSError) as error:
            return [Finding("error", str(error), _AGAIN, path.name)]
        findings = list(_absent_models(path, archive.spec.nodes.values()))
        if archive.handler is not None:
            own = {entry.name.removesuffix(".py") for entry in archive.directory.iterdir()}
            file = archive.directory / archive.handler
            findings += review_code(file, archive.handler, own, None, shim, handler=False)
        return findings


def _absent_models(path: Path, nodes: Iterable[Node]) -> Iterator[Finding]:
    """Nodes whose archives are not beside the workflow: they may be in another model store."""
    sources = _specifications(path)
    for node in nodes:
        if node.url is None or is_url(node.url) or os.path.isabs(node.url):
            continue
        if not (path.parent / os.path.basename(node.url)).exists():
            key = f"$.models.{node.name}.url"
            places = ((file, key_line(text, key)) for file, text in sources.items())
            file, line = max(places, key=lambda place: place[1], default=("", 0))
            text = f"node {node.name}: there is no archive {node.url} beside the workflow"
            yield Finding("note", text, "put it into the model store", file, line)


def _specifications(path: Path) -> dict[str, str]:
    """The YAML files of an archive, by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if n.endswith((".yaml", ".yml"))][:10]
            return {
                name: archive.open(name).read(MAX_BYTES).decode(errors="replace") for name in names
            }
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError):
        return {}
