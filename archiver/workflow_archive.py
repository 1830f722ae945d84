"""Workflow archives, ``.war``: a zip of flat files and a manifest, laid out as TorchServe's."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marserve import __version__
from marserve.archiver.entry_points import function_problem
from marserve.archiver.errors import ArchiveError, ConfigError
from marserve.archiver.manifest import check_model_name
from marserve.archiver.members import DEFAULT_LIMITS, Limits
from marserve.archiver.output import created_on, new_file
from marserve.archiver.unpack import extract
from marserve.archiver.workflow import WorkflowSpec, load_workflow
from marserve.archiver.writers import ZipWriter

MANIFEST_PATH = "WAR-INF/MANIFEST.json"
_MAX_MANIFEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowPackage:
    """What to pack; one field for each flag of ``archive-workflow``.

    Args:
        workflow_name: Letters, digits, ``_ - .``.
        spec_file: The specification, YAML.
        handler: Python file with the functions; None if all nodes are models.
        extra_files: Plain files, packed under their own names.
        export_path: An existing directory.
        force: Whether an existing archive is replaced.
    """

    workflow_name: str
    spec_file: Path
    handler: Path | None = None
    extra_files: tuple[Path, ...] = ()
    export_path: Path = Path()
    force: bool = False

    @property
    def target(self) -> Path:
        """Where the archive goes."""
        return self.export_path / f"{self.workflow_name}.war"


@dataclass(frozen=True, slots=True)
class WorkflowArchive:
    """An unpacked workflow.

    Args:
        directory: Where its files are.
        name: As the manifest says.
        spec: The specification.
        handler: Name of the Python file with the functions, or None.
    """

    directory: Path
    name: str
    spec: WorkflowSpec
    handler: str | None


def pack_workflow(package: WorkflowPackage) -> Path:
    """Packs a workflow; the same input gives the same bytes.

    Returns:
        The archive.

    Raises:
        ArchiveError: If something is missing or wrong; nothing was written then.
        ConfigError: If the specification is wrong.
    """
    check_model_name(package.workflow_name, "workflow name")
    if not package.export_path.is_dir():
        raise ArchiveError(f"--export-path: is no directory: {package.export_path}")
    if package.target.exists() and not package.force:
        raise ArchiveError(f"{package.target} already exists: give --force/-f to replace it")
    files = _gather(package)
    check_functions(load_workflow(package.spec_file), package.handler)
    try:
        with new_file(package.target) as file, ZipWriter(file, stored=False) as writer:
            for name, path in files.items():
                writer.add(name, path, lambda count: None)
            writer.add_bytes(MANIFEST_PATH, _manifest(package))
    except OSError as error:
        raise ArchiveError(f"{error.filename or package.target}: {error.strerror}") from error
    return package.target


def unpack_workflow(
    path: Path, target_dir: Path, limits: Limits = DEFAULT_LIMITS
) -> WorkflowArchive:
    """Extracts a ``.war``.

    Args:
        path: The archive.
        target_dir: Does not exist yet.
        limits: What the archive may cost.

    Raises:
        ArchiveError: If it is broken, hostile or incomplete; nothing is left of it then.
        ConfigError: If its specification is wrong; nothing is left then either.
    """
    target_dir.mkdir(mode=0o700, parents=True)
    try:
        root, _ = extract(path, target_dir, limits)
        name, spec_file, handler = _read_manifest(root, path.name)
        spec = load_workflow(root / spec_file)
        check_functions(spec, root / handler if handler else None)
        return WorkflowArchive(root, name, spec, handler)
    except BaseException:
        shutil.rmtree(target_dir, ignore_errors=True)
        raise


def check_functions(spec: WorkflowSpec, handler: Path | None) -> None:
    """Refuses a specification that names functions which the handler file has not.

    Raises:
        ConfigError: If there is no such file or function.
    """
    for node in spec.nodes.values():
        if node.url is not None:
            continue
        if handler is None:
            text = f"$.dag.{node.name}: is no model, and there is no handler file with functions"
            raise ConfigError("workflow specification", text, "add it to models, or give --handler")
        if problem := function_problem(handler, node.name):
            raise ConfigError(handler.name, f"$.dag.{node.name}: is no model; {problem}")


def _gather(package: WorkflowPackage) -> dict[str, Path]:
    files: dict[str, Path] = {}
    named = [("--spec-file", package.spec_file), ("--handler", package.handler)]
    named += [("--extra-files", path) for path in package.extra_files]
    for flag, path in named:
        if path is None:
            continue
        if not path.is_file():
            kind = "not a file" if path.exists() else "file not found"
            raise ArchiveError(f"{flag}: {kind}: {path}")
        if files.setdefault(path.name, path) != path:
            raise ArchiveError(f"{flag}: {path} and {files[path.name]} have the same name")
    return dict(sorted(files.items()))


def _manifest(package: WorkflowPackage) -> bytes:
    workflow = {"workflowName": package.workflow_name, "specFile": package.spec_file.name}
    if package.handler is not None:
        workflow["handler"] = package.handler.name
    manifest = {
        "createdOn": created_on(),
        "workflow": workflow,
        "archiverVersion": f"marserve {__version__}",
    }
    return (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode()


def _read_manifest(root: Path, archive: str) -> tuple[str, str, str | None]:
    """Returns the workflow's name, its specification file and its handler file."""
    try:
        with (root / MANIFEST_PATH).open("rb") as file:
            plain: Any = json.loads(file.read(_MAX_MANIFEST_BYTES))
        workflow = plain["workflow"]
        name, spec, handler = (workflow.get(k) for k in ("workflowName", "specFile", "handler"))
    except OSError:
        raise ArchiveError(f"{archive}: has no {MANIFEST_PATH}: it is no workflow") from None
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        reason = f"cannot be read: {type(error).__name__}: {error}"
        raise ArchiveError(f"{archive}: {MANIFEST_PATH}: {reason}") from None
    for key, value in (("workflowName", name), ("specFile", spec), ("handler", handler or None)):
        if not (isinstance(value, str) or (key == "handler" and value is None)):
            raise ArchiveError(f"{archive}: {MANIFEST_PATH}: $.workflow.{key}: expected a text")
    check_model_name(name, "workflow name")
    for file_name in filter(None, (spec, handler)):
        if Path(file_name).name != file_name or not (root / file_name).is_file():
            raise ArchiveError(f"{archive}: {file_name!r} is not in the archive")
    return name, spec, handler or None
