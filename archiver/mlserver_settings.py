"""MLServer's ``model-settings.json`` and ``settings.json``: what counts, and what has no effect.

Keys are MLServer's. What has no effect here is named, one message a key, each with what takes its
place; a wrong value of a key that has an effect is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from marserve.archiver.errors import ConfigError
from marserve.archiver.plain_file import read_json
from marserve.archiver.schema import Natural, Reading, check_plain
from marserve.archiver.signature import DATATYPES, TensorSpec

MODEL_FILE = "model-settings.json"
SERVER_FILE = "settings.json"


class ModelParameters(Struct, frozen=True, kw_only=True):
    """The section ``parameters``; it may have any other key as well, which the runtime gets.

    Args:
        uri: Where the model is: a path, relative to the file's folder.
        version: Of the model.
        content_type: How requests are read that do not say it themselves.
        extra: Of the runtime alone.
    """

    uri: str | None = None
    version: str | None = None
    environment_path: str | None = None
    environment_tarball: str | None = None
    inference_pool_gid: str | None = None
    autogenerate_inference_pool_gid: bool | None = None
    format: str | None = None
    content_type: str | None = None
    extra: dict[str, Any] | None = None


class ModelSettings(Struct, frozen=True, kw_only=True):
    """A model-settings.json.

    Args:
        implementation: Import path of the runtime's class.
        max_batch_size: Rows; more than 1 for adaptive batching, with ``max_batch_time``.
        max_batch_time: Seconds for which a request may wait for others.
    """

    name: str = ""
    implementation: str = ""
    platform: str = ""
    versions: list[str] = []
    inputs: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    parallel_workers: int | None = None
    warm_workers: bool | None = None
    max_batch_size: Natural = 0
    max_batch_time: float = 0.0
    cache_enabled: bool | None = None
    parameters: ModelParameters = ModelParameters()


class ServerSettings(NamedTuple):
    """What counts of a settings.json.

    Args:
        workers: Processes for each model, 0 where it does not say.
        cached: Whether answers are kept, of models that want it.
        warnings: What has no effect.
    """

    workers: int = 0
    cached: bool = False
    warnings: Sequence[str] = ()


class _Tensor(Struct, frozen=True, kw_only=True):
    name: str = ""
    datatype: str = ""
    shape: list[int] = []
    parameters: dict[str, Any] = {}
    tags: list[str] = []


_ENVIRONMENT = (
    "is not used: the model runs in the server's environment; a requirements.txt beside the file"
    " is installed with install_py_dep_per_model=true"
)
_POOL = "has no effect: every model has worker processes of its own"
_WITHOUT_EFFECT = {
    "warm_workers": "has no effect: workers load when the model is registered",
    "parameters.environment_path": _ENVIRONMENT,
    "parameters.environment_tarball": _ENVIRONMENT,
    "parameters.inference_pool_gid": _POOL,
    "parameters.autogenerate_inference_pool_gid": _POOL,
}
_ADDRESS = "is set by {} in config.properties"
_SERVER_KEYS = {
    "host": _ADDRESS.format("inference_address"),
    "http_port": _ADDRESS.format("inference_address"),
    "grpc_port": _ADDRESS.format("grpc_inference_port"),
    "grpc_max_message_length": _ADDRESS.format("max_request_size"),
    "metrics_port": _ADDRESS.format("metrics_address"),
    "cors_settings": _ADDRESS.format("cors_allowed_origin and its like"),
    "load_models_at_startup": _ADDRESS.format("load_models, or --models,"),
    "model_repository_root": _ADDRESS.format("model_store"),
    "metrics_endpoint": "is always /metrics, at metrics_address",
    "debug": "has no effect: tracebacks are in the model log",
    "parallel_workers_timeout": "is set by unregister_model_timeout in config.properties",
    "environments_dir": _ENVIRONMENT,
    "cache_size": _ADDRESS.format("response_cache_size, bytes for all models,"),
    "gzip_enabled": "has no effect: answers are compressed if the client accepts it",
    "use_structured_logging": "is set by --log-format json, or log_format in config.properties",
}
_OBEYED = ("parallel_workers", "cache_enabled")
_OTHER_SERVER_KEYS = (
    "model_repository_implementation",
    "model_repository_implementation_args",
    "server_name",
    "server_version",
    "extensions",
    "root_path",
    "metrics_rest_server_prefix",
    "metrics_dir",
    "logging_settings",
    "kafka_enabled",
    "kafka_servers",
    "kafka_topic_input",
    "kafka_topic_output",
    "tracing_server",
)


def read_model_settings(path: Path, warnings: list[str]) -> tuple[ModelSettings, dict[str, Any]]:
    """Reads a model-settings.json.

    Args:
        path: The file; its name is used in messages.
        warnings: Receives what has no effect.

    Returns:
        What is known of it, and all of it as plain values.

    Raises:
        ConfigError: If it cannot be read, or a value is wrong; names file and key.
    """
    raw = read_object(path)
    reading = Reading(path.name, warnings)
    sections = ("inputs", "outputs", "parameters")
    values = reading.fields(ModelSettings, raw, "$", skip=sections)
    given = reading.mapping(raw, "parameters", "$")
    parameters = ModelParameters(**reading.fields(ModelParameters, given, "$.parameters"))
    settings = ModelSettings(**values, parameters=parameters)
    if settings.max_batch_time < 0:
        reading.problem("$.max_batch_time", "seconds >= 0", settings.max_batch_time)
    if not settings.implementation:
        reading.problem("$.implementation", "the import path of a runtime's class", "nothing")
    _name_the_idle(reading, raw, given)
    return settings, raw


def tensor_specs(raw: Mapping[str, Any], key: str, where: str) -> tuple[TensorSpec, ...]:
    """Returns the declared inputs or outputs.

    Args:
        raw: The whole file.
        key: ``inputs`` or ``outputs``.
        where: What to call the file in messages.

    Raises:
        ConfigError: If one is none; names file and key.
    """
    reading = Reading(where, [])
    found = raw.get(key) or []
    if not isinstance(found, list):
        reading.problem(f"$.{key}", "a list of tensors", found)
    specs = []
    for number, each in enumerate(found):
        path = f"$.{key}[{number}]"
        if not isinstance(each, dict):
            reading.problem(path, "a mapping", each)
        tensor = _Tensor(**reading.fields(_Tensor, each, path))
        if not tensor.name:
            reading.problem(f"{path}.name", "the name of a tensor", tensor.name)
        if tensor.datatype not in DATATYPES:
            reading.problem(f"{path}.datatype", f"one of {', '.join(DATATYPES)}", tensor.datatype)
        shape = tuple(tensor.shape)
        specs.append(TensorSpec(tensor.name, tensor.datatype, shape, False, tensor.parameters))
    return tuple(specs)


def read_server_settings(path: Path) -> ServerSettings:
    """Reads a settings.json.

    Raises:
        ConfigError: If it cannot be read, or a value that has an effect is wrong.
    """
    raw, warnings = read_object(path), list[str]()
    reading = Reading(path.name, warnings)
    workers = raw.get("parallel_workers")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int)):
        reading.problem("$.parallel_workers", "a whole number", workers)
    for key in raw:
        if key in _SERVER_KEYS:
            reading.warn(f"$.{key}", _SERVER_KEYS[key])
        elif key in _OTHER_SERVER_KEYS:
            reading.warn(f"$.{key}", "has no effect here")
        elif key not in _OBEYED:
            reading.warn(f"$.{key}", "is no key of this file")
    cached = reading.switch(raw, "cache_enabled", "$")
    return ServerSettings(max(0, workers or 0), cached, warnings)


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON file that holds one object.

    Raises:
        ConfigError: If it cannot be read or is something else.
    """
    plain = read_json(path)
    if not isinstance(plain, dict):
        raise ConfigError(path.name, f"expected an object, got {type(plain).__name__}")
    check_plain(plain, path.name)
    return plain


def _name_the_idle(reading: Reading, raw: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    known = ModelSettings.__struct_fields__
    reading.suggest(raw, ModelSettings, "$")
    for key in raw:
        if key not in known and not any(f"$.{key}:" in text for text in reading.warnings):
            reading.warn(f"$.{key}", "is no key of this file")
    flat = {**raw, **{f"parameters.{key}": value for key, value in given.items()}}
    for key, text in _WITHOUT_EFFECT.items():
        if flat.get(key):
            reading.warn(f"$.{key}", text)
    size, seconds = raw.get("max_batch_size") or 0, raw.get("max_batch_time") or 0
    if size > 1 and not seconds:
        reading.warn("$.max_batch_size", "requests are joined only if max_batch_time is set too")
    elif seconds and size <= 1:
        reading.warn("$.max_batch_time", "has no effect without max_batch_size of 2 or more")


def server_notices(store: Path) -> list[str]:
    """Returns what the settings.json of a model store says in vain; empty if there is none."""
    path = store / SERVER_FILE
    try:
        return list(read_server_settings(path).warnings) if path.is_file() else []
    except ConfigError as error:
        return [str(error)]
