"""Reads metrics.yaml: which metrics there are, of which kind, with which unit and dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from marserve.archiver.errors import ConfigError
from marserve.frontend.instruments import DEFAULT_BUCKETS

DEFAULT_FILE = Path(__file__).with_name("metrics.yaml")
KINDS = ("counter", "gauge", "histogram")
SECTIONS = ("ts_metrics", "model_metrics")


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric of the file.

    Args:
        kind: ``counter``, ``gauge`` or ``histogram``.
        dimensions: Label names, in order.
        buckets: Upper bounds of a histogram's buckets, ascending.
    """

    name: str
    kind: str
    unit: str
    dimensions: tuple[str, ...]
    buckets: tuple[float, ...] = DEFAULT_BUCKETS


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """The whole file.

    Args:
        server: Metrics of the server.
        model: Metrics that handlers report.
        raw: Plain values of the file, for the workers.
    """

    server: tuple[MetricSpec, ...]
    model: tuple[MetricSpec, ...]
    raw: dict[str, Any]


def load_metrics_config(path: Path | None) -> MetricsConfig:
    """Reads a file, the shipped one if none is named.

    Raises:
        ConfigError: If it cannot be read or is not of the form; names the place in it.
    """
    return _load(path or DEFAULT_FILE)


@lru_cache(maxsize=1)
def _load(path: Path) -> MetricsConfig:
    try:
        raw = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"metrics_config {path}", f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"metrics_config {path}", f"is no YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"metrics_config {path}", "is no mapping", f"with {SECTIONS}")
    server, model = (_section(path, raw, name) for name in SECTIONS)
    return MetricsConfig(server, model, {name: raw.get(name) or {} for name in SECTIONS})


def _section(path: Path, raw: dict[str, Any], section: str) -> tuple[MetricSpec, ...]:
    by_kind = raw.get(section) or {}
    where = f"{path.name}: $.{section}"
    if not isinstance(by_kind, dict):
        raise ConfigError(where, "is no mapping", f"its keys are {KINDS}")
    out: list[MetricSpec] = []
    for kind, entries in by_kind.items():
        if kind not in KINDS:
            raise ConfigError(f"{where}.{kind}", "is no kind of metric", f"kinds are {KINDS}")
        if not isinstance(entries, list):
            raise ConfigError(f"{where}.{kind}", "is no list of metrics")
        out += [_spec(f"{where}.{kind}[{i}]", kind, item) for i, item in enumerate(entries)]
    return tuple(out)


def _spec(where: str, kind: str, item: object) -> MetricSpec:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise ConfigError(where, "is no metric", "with name, unit and dimensions")
    dimensions = item.get("dimensions") or []
    if not isinstance(dimensions, list):
        raise ConfigError(f"{where}.dimensions", "is no list of names")
    unit = str(item.get("unit") or "")
    buckets = _buckets(f"{where}.buckets", item.get("buckets"))
    return MetricSpec(item["name"], kind, unit, tuple(map(str, dimensions)), buckets)


def _buckets(where: str, bounds: object) -> tuple[float, ...]:
    if bounds is None:
        return DEFAULT_BUCKETS
    numbers = isinstance(bounds, list) and all(isinstance(b, (int, float)) for b in bounds)
    if not isinstance(bounds, list) or not numbers or sorted(set(bounds)) != bounds:
        raise ConfigError(where, "is no list of ascending numbers")
    return tuple(bounds)
