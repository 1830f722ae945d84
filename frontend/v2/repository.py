"""The model repository of V2: what is there, in which state, and models loaded and unloaded."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

from marserve.frontend.errors import BadRequest, MethodNotAllowed
from marserve.frontend.v2.metadata import is_ready

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.model import Model
    from marserve.frontend.registry import Registry


async def index(registry: Registry, only_ready: bool = False) -> list[dict[str, str]]:
    """Returns name, version, state and reason of all models, also of those that are not loaded.

    Args:
        registry: Of those that are.
        only_ready: Leaves out what cannot answer.
    """
    found, loaded = [], set()
    for each in registry.default_models():
        loaded.add(each.name)
        found += [_entry(model) for model in registry.versions(each.name)]
    if only_ready:
        return [entry for entry in found if entry["state"] == "READY"]
    repository = registry.repository
    stored = await asyncio.to_thread(repository.names)
    for name in sorted({*stored, *repository.failures} - loaded):
        reason = repository.failures.get(name, "unloaded")
        found.append({"name": name, "state": "UNAVAILABLE", "reason": reason})
    return found


def _entry(model: Model) -> dict[str, str]:
    entry = {"name": model.name, "version": model.version, "state": "READY"}
    if model.draining:
        entry |= {"state": "UNLOADING", "reason": "it is being unloaded"}
    elif not is_ready(model):
        cause = model.pool.last_error
        if cause is None and model.pool.size:
            entry |= {"state": "LOADING", "reason": "its workers are starting"}
        else:
            reason = str(cause) if cause is not None else "it has no worker"
            entry |= {"state": "UNAVAILABLE", "reason": reason}
    return entry


async def load(
    registry: Registry, config: ServerConfig, name: str, parameters: dict[str, Any]
) -> None:
    """Loads a model of the model store, all versions that are to be served, or loads it anew.

    Args:
        registry: Of the loaded models.
        config: Says whether that is allowed.
        name: As in the index.
        parameters: ``config``: a Triton model's configuration, JSON text, in the place of its own;
            ``file:1/model.onnx``: with it, a file of the model's folder: bytes, or base64 text.

    Raises:
        BadRequest: If a parameter is wrong.
        ServeError: If it is not allowed, there is no such model, or it cannot be loaded.
    """
    _check_allowed(registry, config)
    files = {}
    for key, value in parameters.items():
        if key.startswith("file:"):
            files[_path(key)] = _content(key, value)
        elif key != "config":
            raise BadRequest(f"parameter {key:.100}: unknown; known: config, file:PATH")
    given = _configuration(parameters.get("config"))
    if files and not config.allow_model_uploads:
        raise MethodNotAllowed(
            "Loading models from files of the call is switched off, for they may be programs. Set"
            " allow_model_uploads=true in config.properties."
        )
    if files and given is None:
        raise BadRequest("files need the parameter config: the model's configuration, JSON text")
    await registry.repository.load(name, given, files)


async def unload(
    registry: Registry, config: ServerConfig, name: str, parameters: dict[str, Any]
) -> None:
    """Unloads all versions of a model; one that is not loaded is no error.

    Args:
        registry: Of the loaded models.
        config: Says whether that is allowed.
        name: As in the index.
        parameters: ``unload_dependents``: whether an ensemble goes with its steps.

    Raises:
        BadRequest: If a parameter is wrong.
        ServeError: If it is not allowed, or takes too long.
    """
    _check_allowed(registry, config)
    dependents = parameters.get("unload_dependents", False)
    if not isinstance(dependents, bool):
        raise BadRequest("unload_dependents: expected true or false")
    await registry.repository.unload(name, dependents)


def _check_allowed(registry: Registry, config: ServerConfig) -> None:
    if not config.enable_model_api:
        raise MethodNotAllowed(
            "Loading and unloading models is switched off. Start the server with"
            " --enable-model-api, or set enable_model_api=true in config.properties."
        )
    registry.repository.check_allowed()


def _path(key: str) -> str:
    path = key.removeprefix("file:")
    if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in path.split("/")):
        raise BadRequest(f"{key:.100}: expected a path below the model's folder, without ..")
    return path


def _content(key: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise BadRequest(f"{key:.100}: expected the content of a file in base64") from None


def _configuration(text: Any) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        given = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"config: no JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadRequest("config: expected a model configuration as a JSON text")
    return given
