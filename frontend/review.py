"""What ``serve check`` reads: model stores, archives, workflows, config.properties, other files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import marserve
from marserve.archiver.errors import ConfigError, MarserveError
from marserve.archiver.findings import Finding, from_messages
from marserve.archiver.foreign import format_of, served_below
from marserve.archiver.manifest import MANIFEST_PATH
from marserve.archiver.mlserver_settings import SERVER_FILE, server_notices
from marserve.archiver.model_config import load_model_config
from marserve.archiver.model_file import is_model_file, model_file_problem
from marserve.archiver.review import Reviewed, review_archive, review_code
from marserve.archiver.triton_config import FILE_NAME as PBTXT
from marserve.archiver.triton_folder import KEY as TRITON
from marserve.archiver.unpack import open_directory
from marserve.frontend.review_config import review_config
from marserve.frontend.review_workflow import review_workflow
from marserve.frontend.store import ARCHIVE_ENDINGS

# On disk only: the shim is imported by workers alone.
SHIM = Path(marserve.__file__).parent / "worker" / "compat" / "ts"
_SHIMS = ("mlserver", "mlserver_huggingface", "triton_python_backend_utils")
_WORKFLOW_ENDING = ".war"
_PROPERTIES = (".properties", ".cfg")


def review(path: Path) -> list[Finding]:
    """Returns what will not work, or will behave differently; nothing is run or loaded.

    Args:
        path: A model store, an archive or its directory, a folder of another server's model, a
            model's file, a workflow archive, a config.properties, a model-config.yaml or a
            handler's Python file.

    Raises:
        ConfigError: If it is none of them.
    """
    if path.is_dir():
        packed = (path / MANIFEST_PATH).is_file()
        return list(_review_archive(path, "")[0]) if packed else list(_review_store(path))
    if path.name.endswith(_PROPERTIES):
        findings, store = review_config(path)
        return findings + (list(_review_store(store)) if store is not None else [])
    if path.name.endswith(ARCHIVE_ENDINGS):
        return _review_archive(path, "")[0]
    if is_model_file(path):
        problem = model_file_problem(path)
        return from_messages([f"{path.name}: {problem}"], "error", {}) if problem else []
    if path.suffix == _WORKFLOW_ENDING:
        return review_workflow(path, SHIM)
    if path.suffix in (".yaml", ".yml"):
        return _review_model_config(path)
    if path.suffix == ".py":
        return review_code(path, path.name, _neighbours(path), None, SHIM, handler=True)
    kinds = "a model store, an archive, a config.properties, a model-config.yaml or a handler"
    raise ConfigError(str(path), "is nothing that can be checked", f"expected {kinds}")


def _review_store(store: Path) -> Iterator[Finding]:
    seen: dict[tuple[str, str], str] = {}
    entries = sorted(entry for entry in store.iterdir() if not entry.name.startswith("."))
    archives = [
        entry
        for entry in entries
        if entry.name.endswith(ARCHIVE_ENDINGS) or (entry / MANIFEST_PATH).is_file()
    ]
    paths = [store / path for group in served_below(store) for path in group]
    foreign = [path for path in paths if path not in archives and format_of(path) is not None]
    workflows = [entry for entry in entries if entry.suffix == _WORKFLOW_ENDING]
    yield from from_messages(server_notices(store), "note", _texts(store, SERVER_FILE))
    if not archives and not workflows and not foreign:
        yield Finding("note", "there is no archive here", "archive-model packs one", str(store))
    for path in (*archives, *foreign):
        if path in foreign:
            findings, identity = _review_foreign(path, store)
        else:
            findings, identity = _review_archive(path, path.name)
        yield from findings
        if identity is None:
            continue
        if identity in seen:
            text = f"{' '.join(identity)} is in {seen[identity]} too: only one of them is served"
            yield Finding("error", text, "give one another name or version", container=path.name)
        seen[identity] = path.name
    yield from _missing_steps(foreign, store, {name for name, _ in seen})
    for path in workflows:
        yield from (finding.inside(path.name) for finding in review_workflow(path, SHIM))


def _review_archive(path: Path, container: str) -> tuple[list[Finding], tuple[str, str] | None]:
    reviewed = review_archive(path, SHIM)
    findings = reviewed.findings + list(_differences(reviewed))
    return [finding.inside(container or path.name) for finding in findings], reviewed.identity


def _review_foreign(folder: Path, store: Path) -> tuple[list[Finding], tuple[str, str] | None]:
    """A folder of another server: what of its configuration is wrong, or has no effect here."""
    sources = _texts(folder, "*.json") | _texts(folder, "*.pbtxt")
    identity = None
    try:
        archive = open_directory(folder)
        model = archive.manifest.model
        identity = (model.model_name, model.model_version) if model.model_name else None
        findings = from_messages(archive.config.warnings, "note", sources)
    except (MarserveError, OSError) as error:
        findings = from_messages([str(error)], "error", sources)
    for path in sorted(folder.glob("*.py")):
        own = _neighbours(path) | _neighbours(path.parent) | set(_SHIMS)
        findings += review_code(path, path.name, own, None, SHIM, handler=False)
    name = folder.relative_to(store).as_posix() if folder != store else folder.name
    return [finding.inside(name) for finding in findings], identity


def _missing_steps(folders: list[Path], store: Path, names: set[str]) -> Iterator[Finding]:
    """Steps of Triton's ensembles that no model of the store can be."""
    for folder in folders:
        with suppress(MarserveError, OSError):  # which is among the findings already
            section = open_directory(folder).config.raw.get(TRITON, {}).get("config", {})
            steps = section.get("ensemble_scheduling", {}).get("step", [])
            for missing in sorted({step["model_name"] for step in steps} - names):
                text = f"the step {missing!r} is no model here: requests will get 404 until it is"
                place = folder.relative_to(store).as_posix()
                yield Finding("note", text, "", PBTXT, container=place)


def _texts(folder: Path, pattern: str) -> dict[str, str]:
    return {path.name: path.read_text(errors="replace") for path in folder.glob(pattern)}


def _differences(reviewed: Reviewed) -> Iterator[Finding]:
    """What is served, but in another way than TorchServe would."""
    config = reviewed.config
    least, most = config.min_workers or 0, config.max_workers or 0
    if 0 < least < most:
        text = f"workers come and go with the load, between {least} and {most}"
        remedy = f"maxWorkers: {least} for a fixed number"
        yield Finding("note", text, remedy, "model-config.yaml")


def _review_model_config(path: Path) -> list[Finding]:
    sources = {path.name: path.read_text(errors="replace")}
    try:
        config = load_model_config(path, strict_handler=False)
    except MarserveError as error:
        return from_messages([str(error)], "error", sources)
    return from_messages(config.warnings, "note", sources)


def _neighbours(path: Path) -> set[str]:
    return {entry.name.removesuffix(".py") for entry in path.parent.iterdir()}
