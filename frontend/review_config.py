"""A config.properties reviewed line by line: all that is wrong at once, and what has no effect."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from marserve.archiver.errors import ConfigError
from marserve.archiver.findings import Finding
from marserve.frontend.config import interpolate, load_config
from marserve.frontend.config_keys import KEYS, ServerConfig
from marserve.frontend.config_kinds import Mismatch
from marserve.frontend.properties import Property, read_properties
from marserve.frontend.snapshots import is_snapshot
from marserve.frontend.urls import is_url

_OTHER_DEFAULTS = {
    "metrics_mode": "metrics are served on the metrics address; TorchServe's default is the log",
    "default_workers_per_model": "a model starts with one worker a GPU, else one; TorchServe starts"
    " one a core",
}
_URLS = "add allowed_urls with a pattern for it: nothing remote is fetched by default"


def review_config(path: Path) -> tuple[list[Finding], Path | None]:
    """Returns the findings, and the model store if the file names one that exists."""
    name = path.name
    try:
        entries = read_properties(path)
    except ConfigError as error:
        return [Finding("error", error.reason, error.hint, name)], None
    findings: list[Finding] = []
    for entry in entries:
        findings += _review_entry(entry, name, is_snapshot=is_snapshot(path))
    if any(finding.level == "error" for finding in findings):
        return findings, None
    try:
        config = _load(path)
    except ConfigError as error:
        line = int(error.where.partition(":")[2].partition(":")[0] or 0)
        findings.append(Finding("error", f"{error.where}: {error.reason}", error.hint, name, line))
        return findings, None
    findings += _review_whole(config, {entry.key: entry.line for entry in entries}, name)
    store = config.model_store if "model_store" in config.sources else None
    return findings, store if store is not None and config.texts["model_store"] else None


def _load(path: Path) -> ServerConfig:
    """The environment counts as it would for a server, but for what would name another file."""
    environ = {k: v for k, v in os.environ.items() if k not in ("TS_CONFIG_FILE", "LOG_LOCATION")}
    flags = {"ts_config": str(path.absolute()), "config_snapshots": True}
    return load_config(flags, environ, Path.cwd(), store_needed=False)


def _review_entry(entry: Property, file: str, *, is_snapshot: bool) -> Iterator[Finding]:
    key = KEYS.get(entry.key)
    if key is None:
        if not is_snapshot:
            near = difflib.get_close_matches(entry.key, KEYS, 1, 0.6)
            remedy = f"did you mean {near[0]}?" if near else "remove it"
            yield Finding("error", f'unknown key "{entry.key}"', remedy, file, entry.line)
        return
    try:
        text = interpolate(entry.value, os.environ, entry.key).strip()
        if text:
            key.kind.read(text)
    except ConfigError as error:
        text = f"{entry.key}: {error.reason}"
        yield Finding("error", text, "set it where the server starts", file, entry.line)
    except Mismatch as error:
        yield Finding("error", f"{entry.key}: {error}", "", file, entry.line)
    else:
        if key.notice and not is_snapshot:
            text = f"{entry.key} has no effect: {key.notice}"
            yield Finding("note", text, "it may stay", file, entry.line)


def _review_whole(config: ServerConfig, lines: Mapping[str, int], file: str) -> Iterator[Finding]:
    """What only the settings together show; what is read elsewhere is not repeated."""
    for notice in config.notices:
        if " has no effect: " not in notice:
            yield Finding("note", notice, file=file)
    for key, text in _OTHER_DEFAULTS.items():
        if key not in lines:
            yield Finding("note", text, f"set {key} for anything else", file)
    store = config.model_store if config.texts["model_store"] else None
    for item in config.load_models or ():
        line = lines.get("load_models", 0)
        if is_url(item.url):
            if not any(pattern.fullmatch(item.url) for pattern in config.allowed_urls):
                text = f"{item.url} is not among the allowed URLs"
                yield Finding("error", text, _URLS, file, line)
        elif store is not None and item.url != "ALL" and not (store / item.url).exists():
            text = f"{item.url} is not in the model store {store}"
            yield Finding("error", text, "put it there, or correct the name", file, line)
