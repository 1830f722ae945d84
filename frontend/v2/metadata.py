"""What V2 tells of the server and of its models: metadata and configuration, as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marserve import __version__
from marserve.archiver.triton_folder import KEY as TRITON

if TYPE_CHECKING:
    from marserve.archiver.signature import Signature, TensorSpec
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.model import Model
    from marserve.frontend.registry import Registry

_EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
    "generate",
)
_WORDS = {"BYTES": "TYPE_STRING"}


def server_metadata(config: ServerConfig) -> dict[str, Any]:
    """Returns name, version and extensions of the server."""
    extensions: list[str] = list(_EXTENSIONS)
    if config.allow_client_shm:
        extensions.append("system_shared_memory")
    return {"name": "marserve", "version": __version__, "extensions": extensions}


def model_metadata(registry: Registry, name: str, version: str | None = None) -> dict[str, Any]:
    """Returns name, versions, platform and tensors of a model.

    Args:
        registry: Of the models.
        name: Of the model.
        version: None for the default one.

    Raises:
        ModelNotFound: If there is no such model.
        VersionNotFound: If it has no such version.
    """
    model = registry.resolve(name, version)
    signature = model.archive.signature
    return {
        "name": model.name,
        "versions": sorted(each.version for each in registry.versions(name)),
        "platform": platform(model),
        "inputs": [] if signature is None else [_tensor(each) for each in signature.inputs],
        "outputs": [] if signature is None else [_tensor(each) for each in signature.outputs],
    }


def platform(model: Model) -> str:
    """Returns what kind of model this is, in the words that its own format has for it."""
    raw = model.archive.config.raw
    if TRITON in raw:
        config = raw[TRITON]["config"]
        return str(config.get("platform") or config.get("backend") or "")
    if "mlserver" in raw:
        return str(raw["mlserver"].get("platform") or "")
    return "pytorch_mar"


def is_ready(model: Model) -> bool:
    """Tells whether a worker of the model can answer."""
    return model.scaler.servable and not model.draining


def model_config(model: Model) -> dict[str, Any]:
    """Returns a model's configuration, with Triton's keys.

    That of Triton's own models is theirs, with all defaults. That of all others says what is in
    force; ``max_batch_size`` is 0, as their shapes already have all dimensions.
    """
    raw = model.archive.config.raw
    if TRITON in raw:
        return dict(raw[TRITON]["config"])
    signature, settings = model.archive.signature, model.settings
    found: dict[str, Any] = {
        "name": model.name,
        "platform": platform(model),
        "backend": "",
        "version_policy": {"specific": {"versions": _numbers(model.version)}},
        "max_batch_size": 0 if signature is None else signature.rows_max,
        "input": [] if signature is None else _tensors(signature, signature.inputs),
        "output": [] if signature is None else _tensors(signature, signature.outputs),
        "instance_group": [
            {
                "name": model.name,
                "kind": "KIND_GPU" if settings.device_type == "gpu" else "KIND_CPU",
                "count": model.max_workers,
            }
        ],
        "default_model_filename": model.archive.manifest.model.serialized_file or "",
        "parameters": {},
        "model_warmup": [],
    }
    if settings.sequences is not None:
        found["sequence_batching"] = {"max_sequence_idle_microseconds": _idle_us(model)}
    elif settings.batch_size > 1:
        found["dynamic_batching"] = {
            "preferred_batch_size": [settings.batch_size],
            "max_queue_delay_microseconds": settings.max_batch_delay_ms * 1000,
        }
        if settings.priority_levels:
            found["dynamic_batching"]["priority_levels"] = settings.priority_levels
            found["dynamic_batching"]["default_priority_level"] = settings.default_priority_level
    return found


def _idle_us(model: Model) -> int:
    sequences = model.settings.sequences
    idle_s = 0.0 if sequences is None else sequences.idle_s
    return 0 if idle_s == float("inf") else int(idle_s * 1e6)


def _numbers(version: str) -> list[int]:
    return [int(version)] if version.isascii() and version.isdecimal() else []


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": spec.name,
        "datatype": spec.datatype,
        "shape": list(spec.shape),
    }
    if spec.parameters:
        found["parameters"] = spec.parameters
    return found


def _tensors(signature: Signature, specs: tuple[TensorSpec, ...]) -> list[dict[str, Any]]:
    """Where the largest batch is bounded, ``dims`` are those of a row."""
    found = []
    for spec in specs:
        dims = spec.shape[1:] if signature.rows_max else spec.shape
        word = _WORDS.get(spec.datatype, f"TYPE_{spec.datatype}")
        one: dict[str, Any] = {"name": spec.name, "data_type": word, "dims": list(dims)}
        if spec.optional:
            one["optional"] = True
        found.append(one)
    return found
