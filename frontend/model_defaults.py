"""The ``models`` key: defaults for versions of models; and the ``model_snapshot`` key."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marserve.frontend.config_kinds import JSON_OBJECT, Kind, Mismatch

ModelTable = Mapping[str, Mapping[str, "ModelDefaults"]]


@dataclass(frozen=True, slots=True)
class WorkflowEntry:
    """A workflow of a snapshot.

    Args:
        name: As clients call it.
        url: As it was registered.
        workers: Least and most workers of each node.
    """

    name: str
    url: str
    workers: Mapping[str, tuple[int, int]]


class SnapshotTable(dict[str, Mapping[str, "ModelDefaults"]]):
    """The models of a snapshot.

    Attributes:
        unregistered: Archives that were served and then unregistered: they stay so.
        workflows: The workflows.
    """

    unregistered: frozenset[str] = frozenset()
    workflows: tuple[WorkflowEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """What holds for a version of a model where nothing nearer says otherwise; None is not given.

    Args:
        default_version: Whether this is the model's default version; counts in a snapshot alone.
        mar_name: Archive in the model store; counts in a snapshot alone.
        min_workers: Workers to start with.
        max_workers: Most workers.
        batch_size: Most requests in a batch.
        max_batch_delay: Most milliseconds to wait for a batch to fill.
        response_timeout: Seconds for a batch.
        startup_timeout: Seconds for loading.
        runtime_type: ``python``, ``python3`` or ``LSP``.
        parallel_level: Processes a worker.
        url: What it was registered with, where that is not ``mar_name``; ours, in snapshots alone,
            like all that follow.
        handler: Served by this one instead of the archive's own.
        traffic_weight: Share of the requests that name no version.
        shadow: Whether it gets a copy of those requests.
    """

    default_version: bool = False
    mar_name: str | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    batch_size: int | None = None
    max_batch_delay: int | None = None
    response_timeout: int | None = None
    startup_timeout: int | None = None
    runtime_type: str | None = None
    parallel_level: int | None = None
    url: str | None = None
    handler: str | None = None
    traffic_weight: float | None = None
    shadow: bool = False


_ATTRIBUTES = {
    "minWorkers": "min_workers",
    "maxWorkers": "max_workers",
    "batchSize": "batch_size",
    "maxBatchDelay": "max_batch_delay",
    "responseTimeout": "response_timeout",
    "startupTimeout": "startup_timeout",
    "parallelLevel": "parallel_level",
    "defaultVersion": "default_version",
    "marName": "mar_name",
    "runtimeType": "runtime_type",
}
_OURS = {
    "url": "url",
    "handler": "handler",
    "trafficWeight": "traffic_weight",
    "shadow": "shadow",
}
_ZERO_COUNTS = ("minWorkers", "maxWorkers", "maxBatchDelay")
_RUNTIMES = ("python", "python3", "LSP")


def parse_models(text: str) -> ModelTable:
    """Reads ``{"model": {"version": {"batchSize": 4, ...}}}``.

    Raises:
        Mismatch: Naming the path in the JSON, what was found and what would be right.
    """
    return _table(JSON_OBJECT.read(text), "$", strict=True)


def parse_snapshot(text: str) -> SnapshotTable:
    """Reads ``{"name": ..., "models": {...}}``; unknown keys pass, as snapshots are often copied.

    Raises:
        Mismatch: Naming the path in the JSON, what was found and what would be right.
    """
    snapshot = JSON_OBJECT.read(text)
    table = _table(_mapping(snapshot.get("models", {}), "$.models"), "$.models", strict=False)
    for name, versions in table.items():
        for version, defaults in versions.items():
            if defaults.mar_name is None:
                place = f"$.models.{name}.{version}.marName"
                raise Mismatch(f"{place}: expected the name of an archive, got nothing")
    snapshot_table = SnapshotTable(table)
    gone = snapshot.get("unregistered")
    snapshot_table.unregistered = frozenset(map(str, gone if isinstance(gone, list) else ()))
    listed = snapshot.get("workflows", [])
    if not isinstance(listed, list):
        raise Mismatch(f"$.workflows: expected a list, got {listed!r}")
    snapshot_table.workflows = tuple(
        _workflow(entry, f"$.workflows.{number}") for number, entry in enumerate(listed)
    )
    return snapshot_table


MODELS = Kind("a JSON object of models", parse_models)
SNAPSHOT = Kind("a JSON object with models", parse_snapshot)


def _workflow(value: object, where: str) -> WorkflowEntry:
    entry = _mapping(value, where)
    for key in ("name", "url"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise Mismatch(f"{where}.{key}: expected a text, got {entry.get(key)!r}")
    workers = {}
    for node, pair in _mapping(entry.get("workers", {}), f"{where}.workers").items():
        place = f"{where}.workers.{node}"
        if not isinstance(pair, list) or len(pair) != 2:
            raise Mismatch(f"{place}: expected least and most workers, got {pair!r}")
        least, most = (_integer(number, place, zero=True) or 0 for number in pair)
        if least > most:
            raise Mismatch(f"{place}: {least} is more than {most}")
        workers[node] = (least, most)
    return WorkflowEntry(entry["name"], entry["url"], workers)


def _table(models: Mapping[str, Any], where: str, *, strict: bool) -> ModelTable:
    table = {}
    for name, versions in models.items():
        entries = _mapping(versions, f"{where}.{name}").items()
        table[name] = {
            version: _defaults(values, f"{where}.{name}.{version}", strict=strict)
            for version, values in entries
        }
    return table


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Mismatch(f"{where}: expected an object, got {value!r}")
    return value


def _defaults(value: object, where: str, *, strict: bool) -> ModelDefaults:
    given: dict[str, Any] = {}
    for key, item in _mapping(value, where).items():
        if key in _ATTRIBUTES:
            zero = not strict and key in _ZERO_COUNTS
            given[_ATTRIBUTES[key]] = _value(key, item, f"{where}.{key}", zero=zero)
        elif key in _OURS and not strict:
            given[_OURS[key]] = _ours(key, item, f"{where}.{key}")
        elif strict:
            near = difflib.get_close_matches(key, _ATTRIBUTES, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else "known are " + ", ".join(_ATTRIBUTES)
            raise Mismatch(f'{where}: unknown key "{key}", {hint}')
    defaults = ModelDefaults(**given)
    least, most = defaults.min_workers, defaults.max_workers
    if least is not None and most is not None and least > most:
        raise Mismatch(f"{where}: minWorkers {least} is more than maxWorkers {most}")
    return defaults


def _ours(key: str, value: object, place: str) -> object:
    if key == "trafficWeight":
        fits, expected = isinstance(value, int | float) and value >= 0, "a number >= 0"
    elif key == "shadow":
        fits, expected = isinstance(value, bool), "true or false"
    else:
        fits, expected = isinstance(value, str) and value != "", "a text"
    if not fits:
        raise Mismatch(f"{place}: expected {expected}, got {value!r}")
    return value


def _value(key: str, value: object, place: str, *, zero: bool) -> object:
    if key == "defaultVersion":
        fits, expected = isinstance(value, bool), "true or false"
    elif key == "runtimeType":
        fits, expected = value in _RUNTIMES, "one of " + ", ".join(_RUNTIMES)
    elif key == "marName":
        fits, expected = isinstance(value, str) and value != "", "the name of an archive"
    else:
        return _integer(value, place, zero=zero)
    if not fits:
        raise Mismatch(f"{place}: expected {expected}, got {value!r}")
    return value


def _integer(value: object, place: str, *, zero: bool) -> int | None:
    """Numbers in quotes count, and what is not positive stands for "not given", as ever.

    A snapshot says what was in force, so there zero is a count like any other.
    """
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not text.removeprefix("-").isdecimal() or len(text) > 10:
        raise Mismatch(f"{place}: expected an integer, got {value!r}")
    return int(text) if int(text) > (-1 if zero else 0) else None
