"""Reads small YAML and JSON files that people wrote into plain values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from marserve.archiver.errors import ConfigError

MAX_BYTES = 1 << 20


def read_yaml(path: Path) -> Any:
    """Returns what a YAML file of at most ``MAX_BYTES`` holds; an empty one holds None.

    Raises:
        ConfigError: If it cannot be read, is too large, or is no YAML.
    """
    data = _read(path)
    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())[:500]
        raise ConfigError(path.name, f"cannot be read as YAML: {reason}") from None


def read_json(path: Path) -> Any:
    """Returns what a JSON file of at most ``MAX_BYTES`` holds.

    Raises:
        ConfigError: If it cannot be read, is too large, or is no JSON.
    """
    data = _read(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(path.name, f"cannot be read as JSON: {error}") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(path.name, f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(path.name, f"larger than {MAX_BYTES} bytes")
    return data
