"""Folders of MLServer, which have a ``model-settings.json``, read as archives.

Nothing is copied or changed: the folder is the model's directory, and its code is found there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from marserve.archiver.digest import hash_lines
from marserve.archiver.foreign import Format
from marserve.archiver.manifest import DEFAULT_VERSION, Manifest, ManifestModel
from marserve.archiver.mlserver_huggingface import HUGGING_FACE, check_options, signature_of_task
from marserve.archiver.mlserver_settings import (
    MODEL_FILE,
    SERVER_FILE,
    ModelSettings,
    ServerSettings,
    read_model_settings,
    read_server_settings,
    tensor_specs,
)
from marserve.archiver.model_config import parse_model_config
from marserve.archiver.signature import Signature
from marserve.archiver.unpack import Archive, walk_files

HANDLER = "mlserver_runtime"
SECTION = "mlserver"
"""The key of the configuration under which a worker finds the whole model-settings.json."""

_LEVELS_UP = 3  # folders above the model's in which a settings.json counts


def recognizes(folder: Path) -> bool:
    """Whether a folder has a model-settings.json."""
    return (folder / MODEL_FILE).is_file()


def open_folder(folder: Path) -> Archive:
    """Reads a folder with a model-settings.json, in place.

    Raises:
        ConfigError: If a value is wrong; names file and key.
    """
    warnings: list[str] = []
    settings, raw = read_model_settings(folder / MODEL_FILE, warnings)
    signature = _declared(raw)
    if settings.implementation == HUGGING_FACE:
        options = check_options(settings, warnings)
        raw = {**raw, "parameters": {**(raw.get("parameters") or {}), "extra": options}}
        signature = signature or signature_of_task(str(options.get("task", "")))
    server = _server_settings(folder)
    if settings.cache_enabled and not server.cached:
        text = "has no effect without cache_enabled: true in a settings.json of the store"
        warnings.append(f"{MODEL_FILE}: $.cache_enabled: {text}")
    config = parse_model_config(_configuration(settings, raw, server), MODEL_FILE)
    requirements = "requirements.txt" if (folder / "requirements.txt").is_file() else None
    manifest = Manifest(
        runtime="python",
        model=ManifestModel(
            model_name=settings.name,
            model_version=settings.parameters.version or DEFAULT_VERSION,
            handler=HANDLER,
            requirements_file=requirements,
        ),
    )
    config = msgspec.structs.replace(config, warnings=warnings)
    return Archive(folder, manifest, config, _digest(folder), signature)


def rank(archive: Archive) -> tuple[bool, bool, int, str]:
    """Returns what orders the versions of a model; the last one answers where none is named.

    That is the one without a version, else the highest number, else the greatest text.
    """
    section: dict[str, Any] = archive.config.raw.get(SECTION) or {}
    given = (section.get("parameters") or {}).get("version")
    text = str(given or "")
    number = text.isdecimal()
    return given is None, number, int(text) if number else 0, text


def _declared(raw: dict[str, Any]) -> Signature | None:
    """MLServer compares no request with its declarations, so clients may differ from them."""
    inputs, outputs = (tensor_specs(raw, key, MODEL_FILE) for key in ("inputs", "outputs"))
    if not inputs and not outputs:
        return None
    return Signature(inputs, outputs, strict=False)


def _server_settings(folder: Path) -> ServerSettings:
    """The nearest settings.json."""
    for parent in (folder, *list(folder.resolve().parents)[:_LEVELS_UP]):
        path = parent / SERVER_FILE
        if path.is_file():
            return read_server_settings(path)
    return ServerSettings()


def _configuration(
    settings: ModelSettings, raw: dict[str, Any], server: ServerSettings
) -> dict[str, Any]:
    """The same in the words of model-config.yaml."""
    found: dict[str, Any] = {SECTION: raw}
    alone = settings.parallel_workers is not None and settings.parallel_workers <= 0
    workers = 1 if alone else server.workers
    if settings.cache_enabled and server.cached:
        found["responseCache"] = True
    if workers:
        found |= {"minWorkers": workers, "maxWorkers": workers}
    if settings.max_batch_size > 1 and settings.max_batch_time > 0:
        delay_ms = max(1, round(settings.max_batch_time * 1000))
        found |= {"batchSize": settings.max_batch_size, "maxBatchDelay": delay_ms}
    elif settings.implementation != HUGGING_FACE:
        found["asyncCommunication"] = True
    return found


def _digest(folder: Path) -> str:
    lines = []
    for name, file in walk_files(folder):
        status = file.stat()
        lines.append(f"{status.st_size} {status.st_mtime_ns} {name}")
    return hash_lines(lines)


FORMAT = Format("MLServer", recognizes, open_folder)
