"""Reads ``config.properties``, the command line and the environment into one ``ServerConfig``.

One rule of precedence: defaults < file < command line < environment, the last only where the file
says ``enable_envvars_config=true``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from marserve.archiver.errors import ConfigError
from marserve.frontend.address import Address
from marserve.frontend.config_checks import check, is_file
from marserve.frontend.config_keys import KEYS, Key, ServerConfig, environment_variable
from marserve.frontend.config_kinds import LoadItem, Mismatch
from marserve.frontend.model_defaults import ModelDefaults
from marserve.frontend.properties import Property, read_properties
from marserve.frontend.restoring import Raw, restore

__all__ = [
    "Address",
    "LoadItem",
    "ModelDefaults",
    "ServerConfig",
    "describe_config",
    "find_config_file",
    "interpolate",
    "load_config",
]

FLAGS: Mapping[str, str] = {
    "model_store": "--model-store",
    "workflow_store": "--workflow-store",
    "load_models": "--models",
    "model_control_mode": "--model-control-mode",
    "repository_poll_secs": "--repository-poll-secs",
    "cpp_log_config": "--cpp-log-config",
    "plugins_path": "--plugins-path",
    "disable_token_authorization": "--disable-token-auth",
    "enable_model_api": "--enable-model-api",
    "config_snapshots": "--no-config-snapshots",
}
_SWITCHED_TO = {"config_snapshots": "off"}  # what a flag means that is not "true"
_SECRET_NAMES = ("inference", "management", "API")
_INTERPOLATION = re.compile(r"\$\$(\w+)\$\$")


def load_config(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    cwd: Path,
    *,
    store_needed: bool = True,
) -> ServerConfig:
    """Returns the effective settings.

    Args:
        flags: By key of ``FLAGS``, and ``ts_config`` for the file; None, False and empty values are
            flags that were not given. A sequence is joined with commas.
        environ: The environment.
        cwd: What relative paths refer to.
        store_needed: Whether a model store must be given, which no server can do without.

    Raises:
        ConfigError: If a file cannot be read, a key is unknown, a value does not fit, or values
            contradict each other.
    """
    path = find_config_file(flags, environ, cwd)
    notices: list[str] = []
    raw = dict(_from_file(read_properties(path), path, environ, notices)) if path else {}
    switched_on = _is_true(raw.get("enable_envvars_config"))
    from_env_urls = _is_true(raw.get("use_env_allowed_urls"))
    raw.update(_from_flags(flags))
    if switched_on:
        raw.update(_from_environment(environ, allow_urls=from_env_urls))
    if environ.get("TS_OPEN_INFERENCE_PROTOCOL", "").lower() == "oip":
        name = "ts_open_inference_protocol"
        raw[name] = Raw("true", "environment variable TS_OPEN_INFERENCE_PROTOCOL")
    log_location = cwd / (environ.get("LOG_LOCATION") or "logs")
    asked = bool(environ.get("TS_CONFIG_FILE") or flags.get("ts_config"))
    given = dict(raw)
    restored, more = restore(raw, log_location, cwd, asked_for_a_file=asked, has_file=bool(path))
    raw.update(restored)
    values = {name: _value(name, item, cwd) for name, item in raw.items()}
    notices += more
    notices += [
        f"{given[name].source}: {name} has no effect: {KEYS[name].notice}"
        for name in given
        if KEYS[name].notice
    ]
    if store_needed and "model_store" not in values:
        reason = "Missing mandatory parameter --model-store"
        raise ConfigError("model_store", reason, "or model_store in config.properties")
    values["models"] = {**values.get("models", {}), **values.get("model_snapshot", {})}
    config = ServerConfig(
        **values,
        sources={name: raw[name].source if name in raw else "default" for name in KEYS},
        texts={name: raw[name].text if name in raw else KEYS[name].default for name in KEYS},
        notices=tuple(notices),
        config_file=path,
        restored_models="model_snapshot" in restored,
        log_location=log_location,
        metrics_location=cwd / (environ.get("METRICS_LOCATION") or "logs"),
        fixed_keys=dict(_fixed_keys(environ, cwd)),
    )
    return check(config)


def find_config_file(
    flags: Mapping[str, object], environ: Mapping[str, str], cwd: Path
) -> Path | None:
    """Returns ``TS_CONFIG_FILE``, else ``--ts-config``, else ``config.properties`` if it is there.

    Raises:
        ConfigError: If the file that was asked for does not exist.
    """
    for asked, where in (
        (environ.get("TS_CONFIG_FILE"), "TS_CONFIG_FILE"),
        (flags.get("ts_config"), "--ts-config"),
    ):
        if asked:
            path = cwd / str(asked)
            if not is_file(path):
                raise ConfigError(where, f"file not found: {asked}")
            return path
    path = cwd / "config.properties"
    return path if is_file(path) else None


def describe_config(config: ServerConfig) -> str:
    """Returns a line for each key: its effective value and where that came from."""
    pairs = []
    for name, key in KEYS.items():
        text = config.texts[name]
        pairs.append((f"{name}={'****' if key.secret and text else text}", config.sources[name]))
    width = min(60, max(len(pair) for pair, _ in pairs))
    file = config.config_file or "none"
    lines = [f"# config file: {file}"]
    lines += [f"{pair:<{width}}  # {source}" for pair, source in pairs]
    return "\n".join(lines) + "\n"


def _is_true(raw: Raw | None) -> bool:
    return raw is not None and raw.text.lower() == "true"


def _from_file(
    entries: list[Property], path: Path | None, environ: Mapping[str, str], notices: list[str]
) -> Iterator[tuple[str, Raw]]:
    seen: dict[str, int] = {}
    for entry in entries:
        source = f"{path.name if path else ''}:{entry.line}"
        if entry.key not in KEYS:
            near = difflib.get_close_matches(entry.key, KEYS, 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else "see the sample config.properties"
            raise ConfigError(source, f'unknown key "{entry.key}"', hint)
        if entry.key in seen:
            notices.append(f"{source}: {entry.key} replaces the one in line {seen[entry.key]}")
        seen[entry.key] = entry.line
        text = interpolate(entry.value, environ, f"{source}: {entry.key}").strip()
        if text:
            yield entry.key, Raw(text, source)


def interpolate(text: str, environ: Mapping[str, str], where: str) -> str:
    """Replaces ``$$NAME$$`` by environment variables.

    Raises:
        ConfigError: If one is not set.
    """

    def replace(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise ConfigError(where, f"Invalid Environment Variable {match[1]}", "it is not set")
        return environ[match[1]]

    return _INTERPOLATION.sub(replace, text)


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, Raw]]:
    for name, value in flags.items():
        if name == "ts_config" or value is None or value is False:
            continue
        if name not in FLAGS:
            raise ConfigError(name, "no such flag", "known are " + ", ".join(FLAGS))
        if isinstance(value, (list, tuple)):
            text = ",".join(str(item) for item in value)
        else:
            text = _SWITCHED_TO.get(name, "true") if value is True else str(value)
        if text.strip():
            yield name, Raw(text.strip(), FLAGS[name])


def _from_environment(environ: Mapping[str, str], *, allow_urls: bool) -> Iterator[tuple[str, Raw]]:
    for name in KEYS:
        variable = environment_variable(name)
        if variable is None or (name == "allowed_urls" and not allow_urls):
            continue
        text = environ.get(variable, "").strip()
        if text:
            yield name, Raw(text, f"environment variable {variable}")


def _value(name: str, raw: Raw, cwd: Path) -> Any:
    key: Key = KEYS[name]
    try:
        value = key.kind.read(raw.text)
    except Mismatch as error:
        raise ConfigError(f"{raw.source}: {name}", str(error)) from None
    return cwd / value if isinstance(value, Path) else value


def _fixed_keys(environ: Mapping[str, str], cwd: Path) -> Iterator[tuple[str, str]]:
    """Keys given instead of made: ``MARSERVE_INFERENCE_KEY``, or a file by ``..._KEY_FILE``."""
    for name in _SECRET_NAMES:
        variable = f"MARSERVE_{name.upper()}_KEY"
        secret, path = environ.get(variable), environ.get(f"{variable}_FILE")
        if secret is None and path:
            try:
                secret = (cwd / path).read_text("ascii").strip()
            except (OSError, ValueError) as error:
                raise ConfigError(f"{variable}_FILE", f"cannot be read: {error}") from None
            variable += "_FILE"
        if secret is not None:
            if not re.fullmatch(r"[\x21-\x7e]{8,}", secret):
                hint = "8 or more visible ASCII characters without blanks"
                raise ConfigError(variable, "is no key", hint)
            yield name, secret
