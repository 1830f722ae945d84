"""Which snapshot a server comes back from, and what it takes from it.

TorchServe takes the last snapshot in place of ``./config.properties`` and of ``--models``. Here a
snapshot answers only the question what a server that was started in this way served last: it
counts if model store and models to load are named as they were then, and it overrides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marserve.archiver.errors import ConfigError
from marserve.frontend.config_keys import KEYS
from marserve.frontend.config_kinds import Mismatch
from marserve.frontend.model_defaults import SNAPSHOT
from marserve.frontend.properties import read_properties
from marserve.frontend.snapshots import find_snapshots


@dataclass(frozen=True, slots=True)
class Raw:
    """Text of a key, and where it stands."""

    text: str
    source: str


def restore(
    given: Mapping[str, Raw],
    log_location: Path,
    cwd: Path,
    *,
    asked_for_a_file: bool,
    has_file: bool,
) -> tuple[dict[str, Raw], list[str]]:
    """Returns the settings that the last snapshot adds to those given, and notices.

    Args:
        given: What files, flags and environment say.
        log_location: Where snapshots are, in a folder ``config``.
        cwd: What relative paths refer to.
        asked_for_a_file: Whether a flag or a variable names the file with the settings; it is the
            whole truth then, unless ``config_snapshots=always``.
        has_file: Whether there is such a file; of the snapshot only the models count then.
    """
    mode = given["config_snapshots"].text.lower() if "config_snapshots" in given else "auto"
    if mode == "off" or "model_snapshot" in given or (asked_for_a_file and mode != "always"):
        return {}, []
    notices: list[str] = []
    for path in find_snapshots(log_location):
        try:
            found = _read(path)
        except (ConfigError, Mismatch) as error:
            notices.append(f"{path.name} cannot be restored: {error}")
            continue
        if reason := _made_otherwise(given, found, cwd):
            notices.append(f"{path.name} is not restored: {reason}")
            return {}, notices
        strict = given.get("compat", Raw("", "")).text.lower() == "strict"
        taken = {
            name: raw
            for name, raw in found.items()
            if name == "model_snapshot"
            or (_is_replaceable(given.get(name)) if strict else not has_file and name not in given)
        }
        notices.append(f"models are restored from {path}; --no-config-snapshots starts afresh")
        return taken, notices
    return {}, notices


def _read(path: Path) -> dict[str, Raw]:
    """Returns the entries of a snapshot that we know; TorchServe's has many more."""
    found = {
        entry.key: Raw(entry.value.strip(), f"{path.name}:{entry.line}")
        for entry in read_properties(path)
        if entry.key in KEYS and entry.value.strip()
    }
    if "model_snapshot" not in found:
        raise ConfigError(path.name, "model_snapshot is missing")
    SNAPSHOT.read(found["model_snapshot"].text)
    return found


def _made_otherwise(given: Mapping[str, Raw], found: Mapping[str, Raw], cwd: Path) -> str:
    """Why a snapshot does not belong to what is started; empty if it does."""
    store = given.get("model_store")
    if store is not None and "model_store" in found:
        then = (cwd / found["model_store"].text).resolve()
        if (cwd / store.text).resolve() != then:
            return f"it was written for the model store {then}"
    models, then_models = given.get("load_models"), found.get("load_models")
    if models is not None and (then_models is None or models.text != then_models.text):
        named = then_models.text if then_models else "no models"
        return f"it was written by a server that was started with {named}, not {models.text}"
    return ""


def _is_replaceable(raw: Raw | None) -> bool:
    """In TorchServe a snapshot replaces the file; flags and environment still win."""
    return raw is None or not raw.source.startswith(("--", "environment"))
