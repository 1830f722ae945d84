"""Snapshot files: where they are, which one is the last, and what stands in them.

They have TorchServe's names and format, ``logs/config/<yyyyMMddHHmmssSSS>-startup.cfg``: Java
properties with the settings in force and ``model_snapshot``, a JSON object of the models.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from marserve.frontend.config_keys import KEYS
from marserve.frontend.properties import format_properties

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.model import Model
    from marserve.frontend.versions import Versions

Kind = Literal["startup", "snapshot", "shutdown"]

DIRECTORY = "config"
KEPT = 20
"""So many snapshots stay; older ones are removed."""

_NAME = re.compile(r"(\d{17})-(?:startup|snapshot|shutdown)\.cfg")
_API_VERSION = "0.12.0"
_ABOUT = "# Written by marserve; serve --ts-config starts from it.\n"
# A flag is an answer to one start. What opens the server must be asked for each time.
_FLAG_HOLDS = ("model_store", "workflow_store", "load_models")
_NEVER = ("model_snapshot", "models", "version", "tsConfigFile", "config_snapshots")


def is_snapshot(path: Path) -> bool:
    """Returns whether a file has the name of a snapshot."""
    return _NAME.fullmatch(path.name) is not None


def find_snapshots(log_location: Path) -> list[Path]:
    """Returns the snapshot files below a log directory, the newest first."""
    try:
        names = [entry.name for entry in (log_location / DIRECTORY).iterdir()]
    except OSError:
        return []
    fit = sorted((name for name in names if _NAME.fullmatch(name)), reverse=True)
    return [log_location / DIRECTORY / name for name in fit]


def describe_models(
    names: Mapping[str, Versions],
    unregistered: Iterable[str] = (),
    workflows: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Returns the models as ``model_snapshot`` shows them, without its name and time.

    Args:
        names: Every name with its versions; nodes of workflows, and models that came with a
            call, are left out.
        unregistered: Archives that were served once and are not to come back.
        workflows: What ``Workflows.describe`` says of them; each brings its nodes back.
    """
    models = {
        name: {
            model.version: _describe(model, versions)
            for model in versions.models.values()
            if model.workflow is None and model.url
        }
        for name, versions in names.items()
    }
    found = {name: versions for name, versions in models.items() if versions}
    count = sum(len(versions) for versions in found.values())
    document = {"modelCount": count, "models": found, "unregistered": sorted(unregistered)}
    return document | ({"workflows": listed} if (listed := list(workflows)) else {})


def settings_text(config: ServerConfig) -> dict[str, str]:
    """Returns the settings that were given, and an absolute path for a relative one."""
    given: dict[str, str] = {}
    for name, key in KEYS.items():
        source = config.sources.get(name, "default")
        by_flag = source.startswith("--") and name not in _FLAG_HOLDS
        if source == "default" or by_flag or name in _NEVER or key.secret:
            continue
        value = getattr(config, name)
        given[name] = str(value) if isinstance(value, Path) else config.texts[name]
    return given


def write_snapshot(
    log_location: Path, kind: Kind, settings: Mapping[str, str], models: Mapping[str, Any]
) -> Path:
    """Writes a snapshot and removes the oldest ones; it is there whole, or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    directory = log_location / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    known = find_snapshots(log_location)
    moment = _later_than(known[0].name[:17] if known else "")
    path = directory / f"{moment}-{kind}.cfg"
    document = {"name": path.name, "created": int(time.time() * 1000), **models}
    text = format_properties(
        {**settings, "version": _API_VERSION, "model_snapshot": json.dumps(document)}
    )
    _replace(path, _ABOUT + text)
    for old in known[KEPT - 1 :]:
        with suppress(OSError):
            old.unlink()
    return path


def _describe(model: Model, versions: Versions) -> dict[str, Any]:
    from marserve.frontend.urls import is_url  # and asyncio with it, which a command needs not

    settings, manifest = model.settings, model.archive.manifest
    name = os.path.basename(model.url.rstrip("/").partition("#")[0].partition("?")[0])
    entry: dict[str, Any] = {
        "defaultVersion": versions.default == model.version,
        "marName": name if is_url(model.url) else model.url,
        "minWorkers": model.min_workers,
        "maxWorkers": model.max_workers,
        "batchSize": settings.batch_size,
        "maxBatchDelay": settings.max_batch_delay_ms,
        "responseTimeout": math.ceil(settings.response_timeout_s),
        "startupTimeout": math.ceil(settings.startup_timeout_s),
        "runtimeType": manifest.runtime,
    }
    if is_url(model.url):
        entry["url"] = model.url
    if settings.handler is not None:
        entry["handler"] = settings.handler
    rules = versions.describe_rules()
    if model.version in rules.get("weights", {}):
        entry["trafficWeight"] = rules["weights"][model.version]
    if rules.get("shadow") == model.version:
        entry["shadow"] = True
    return entry


def _later_than(last: str) -> str:
    """The name of this millisecond, or of the next free one: names are the order of the files."""
    now = time.time_ns() // 1_000_000
    text = _moment(now)
    if text <= last:  # the clock may also have been set back
        text = str(int(last) + 1).zfill(17)
    return text


def _moment(epoch_ms: int) -> str:
    seconds, rest = divmod(epoch_ms, 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{rest:03}"


def _replace(path: Path, text: str) -> None:
    """A reader, also one after a loss of power, finds the whole file or none."""
    fd, temporary = tempfile.mkstemp(prefix=".snapshot-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
