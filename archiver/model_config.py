"""THE schema of ``model-config.yaml``: read when packing, when registering and in the worker.

Keys are TorchServe's. A value that TorchServe would ignore or clamp is an error here, because it
means that the file does not say what its author wanted. Keys that the schema does not know belong
to the handler and are kept in ``raw``; one that looks like a slip of a known key gets a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from marserve.archiver.errors import ConfigError
from marserve.archiver.handler_options import HandlerOptions
from marserve.archiver.manifest import TRANSFORMER_HANDLER
from marserve.archiver.own_signature import check_signature
from marserve.archiver.plain_file import read_yaml
from marserve.archiver.schema import Natural, Positive, Reading, UpTo100, check_plain


class Torchrun(Struct, frozen=True, rename="kebab", kw_only=True):
    """How the ranks of one worker are started; the keys are torchrun's."""

    nnodes: Positive | None = None
    nproc_per_node: Positive | None = None
    rdzv_backend: str | None = None
    rdzv_endpoint: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: str | None = None
    monitor_interval: Positive | None = None
    node_rank: Natural | None = None
    max_restarts: Natural | None = None
    master_addr: str | None = None
    master_port: Positive | None = None
    omp_number_threads: Positive | None = field(name="OMP_NUMBER_THREADS", default=None)


class Compilation(Struct, frozen=True, kw_only=True):
    """The ``pt2`` section, all of its forms brought into one.

    Args:
        compile: Whether the model goes through ``torch.compile``.
        options: Its arguments, such as ``backend`` and ``mode``.
        aot_compile: Whether the weights are a compiled package.
    """

    compile: bool = False
    options: dict[str, Any] = {}
    aot_compile: bool = False


class Parallelism(Struct, frozen=True, kw_only=True):
    """Threads for each stage of micro-batching."""

    preprocess: Positive | None = None
    inference: Positive | None = None
    postprocess: Positive | None = None


class MicroBatching(Struct, frozen=True, kw_only=True):
    """The ``micro_batching`` section."""

    micro_batch_size: Positive | None = None
    parallelism: Parallelism | None = None


class QueuePolicy(Struct, frozen=True, rename="camel", kw_only=True):
    """How long requests may wait in the queue, and how many.

    Args:
        timeout_action: ``reject`` refuses a request that waited too long, ``delay`` lets all others
            go first.
        default_timeout_microseconds: 0 for no limit.
        allow_timeout_override: Whether a request's own time limit may be a shorter one.
        max_queue_size: Requests that wait; 0 for what ``jobQueueSize`` says.
    """

    timeout_action: Literal["reject", "delay"] = "reject"
    default_timeout_microseconds: Natural = 0
    allow_timeout_override: bool = False
    max_queue_size: Natural = 0


class DynamicBatching(Struct, frozen=True, rename="camel", kw_only=True):
    """The ``dynamicBatching`` section: batches as Triton's dynamic batcher makes them.

    Args:
        preferred_batch_size: Rows of the batches that do not wait for more.
        max_queue_delay_microseconds: How long a request waits for company while a worker is free.
        default_queue_policy: Of levels without one of their own.
        priority_queue_policy: By level, written as a text.
    """

    preferred_batch_size: list[Positive] = []
    max_queue_delay_microseconds: Natural = 0
    default_queue_policy: QueuePolicy = QueuePolicy()
    priority_queue_policy: dict[str, QueuePolicy] = {}


class DeclaredTensor(Struct, frozen=True, kw_only=True):
    """One input or output of the ``signature`` section.

    Args:
        shape: With the dimension of the rows, if there is one; -1 where any size will do.
        labels: Of classes, by index; of outputs.
    """

    name: str = ""
    datatype: str = ""
    shape: list[int] = []
    optional: bool | None = None
    labels: list[str] = []


class DeclaredSignature(Struct, frozen=True, rename="camel", kw_only=True):
    """The ``signature`` section: the tensors that V2 requests are compared with.

    Args:
        max_rows: Largest first dimension of an input, which then counts rows; 0 for no bound.
        strict: Whether requests that differ are refused; true if absent.
    """

    inputs: list[DeclaredTensor] = []
    outputs: list[DeclaredTensor] = []
    max_rows: Natural = 0
    strict: bool | None = None


class ModelConfig(Struct, frozen=True, rename="camel", kw_only=True):
    """A model-config.yaml; None stands for a key that is absent.

    Args:
        max_batch_delay: Milliseconds.
        response_timeout: Seconds; so is ``startup_timeout``.
        client_timeout_in_mills: Milliseconds; 0 for no limit.
        job_queue_size: 0 for the server's own setting.
        scale_down_idle_sec: Seconds; ours, like ``idle_timeout_sec``: 0 for never.
        retry_in_flight: Ours; whether a batch whose worker died may run on another.
        priority_levels: Ours; 0 for none, else requests of level 1 are served before those of 2.
        default_priority_level: Ours; of requests that name none; the middle one if absent.
        dynamic_batching: Ours; how the queue makes batches, in the place of ``max_batch_delay``.
        response_cache: Ours; whether answers to V2 requests are kept for the same request.
        signature: Ours; the tensors of V2 requests and answers.
        use_handler: Ours; serves the archive in the place of the handler that it carries.
        raw: The whole file as plain values, for handlers.
        warnings: Slips that are no errors, each fit to be shown.
    """

    min_workers: Natural | None = None
    max_workers: Natural | None = None
    batch_size: Positive | None = None
    max_batch_delay: Natural | None = None
    response_timeout: Positive | None = None
    startup_timeout: Positive | None = None
    device_type: Literal["cpu", "gpu"] | None = None
    device_ids: list[Natural] | None = None
    parallel_type: Literal["pp", "tp", "pptp", "custom"] | None = None
    parallel_level: Natural | None = None
    torchrun: Torchrun | None = None
    max_retry_timeout_in_sec: Natural | None = None
    client_timeout_in_mills: Natural | None = None
    job_queue_size: Natural | None = None
    scale_down_idle_sec: Positive | None = None
    idle_timeout_sec: Natural | None = None
    max_requests_per_worker: Natural | None = None
    max_worker_memory_mb: Natural | None = field(name="maxWorkerMemoryMB", default=None)
    retry_in_flight: bool | None = None
    use_job_ticket: bool | None = None
    priority_levels: UpTo100 | None = None
    default_priority_level: Positive | None = None
    sequence_max_idle_msec: Natural | None = field(name="sequenceMaxIdleMSec", default=None)
    sequence_timeout_msec: Natural | None = field(name="sequenceTimeoutMSec", default=None)
    max_sequence_job_queue_size: Positive | None = None
    max_num_sequence: Positive | None = None
    continuous_batching: bool | None = None
    sequence_batching: bool | None = None
    async_communication: bool | None = None
    dynamic_batching: DynamicBatching | None = None
    response_cache: bool | None = None
    signature: DeclaredSignature | None = None
    use_venv: bool | None = None
    use_handler: str | None = None
    pt2: Compilation | None = None
    handler: HandlerOptions = HandlerOptions()
    micro_batching: MicroBatching | None = field(name="micro_batching", default=None)
    dali: dict[str, Any] | None = None
    pippy: dict[str, Any] | None = None
    deepspeed: dict[str, Any] | None = None
    raw: dict[str, Any] = {}
    warnings: list[str] = []


def load_model_config(path: Path, *, strict_handler: bool = True) -> ModelConfig:
    """Reads a model-config.yaml; an empty file is an empty configuration.

    Args:
        path: The file; its name is used in messages.
        strict_handler: As for ``parse_model_config``.

    Raises:
        ConfigError: If it cannot be read, is no YAML mapping or a value is wrong.
    """
    return parse_model_config(_read_mapping(path), path.name, strict_handler=strict_handler)


def parse_model_config(
    mapping: Mapping[str, Any], where: str = "model-config.yaml", *, strict_handler: bool = True
) -> ModelConfig:
    """Checks plain values against the schema.

    Args:
        mapping: The content of the file.
        where: What to call the file in messages.
        strict_handler: Whether a wrong value under ``handler`` is an error. It is for our
            transformer handler; another handler may use the same key in its own way, so there such
            a value is a warning and counts as absent.

    Raises:
        ConfigError: If a value is wrong, or several do not go together.
    """
    raw = dict(mapping)
    check_plain(raw, where)
    reading = Reading(where, [])
    values = reading.fields(ModelConfig, raw, "$", skip=("raw", "warnings", "handler", "pt2"))
    reading.suggest(raw, ModelConfig, "$", skip=("raw", "warnings"))
    values["pt2"] = _read_pt2(reading, raw.get("pt2"))
    strict = strict_handler or raw.get("useHandler") == TRANSFORMER_HANDLER
    values["handler"] = _read_handler(reading, raw.get("handler"), strict=strict)
    config = ModelConfig(**values, raw=raw, warnings=reading.warnings)
    _check_together(reading, config)
    check_signature(config, where)
    return config


def _read_mapping(path: Path) -> dict[str, Any]:
    plain = read_yaml(path)
    if plain is None:
        return {}
    if not isinstance(plain, dict):
        raise ConfigError(path.name, f"expected a mapping of keys, got {type(plain).__name__}")
    return plain


def _read_handler(reading: Reading, section: object, *, strict: bool) -> HandlerOptions:
    if section is None:
        return HandlerOptions()
    if not isinstance(section, dict):
        reading.problem("$.handler", "a mapping", section, fatal=strict)
        return HandlerOptions()
    known = {item.encode_name for item in msgspec.structs.fields(HandlerOptions)} - {"extra"}
    values = reading.fields(HandlerOptions, section, "$.handler", skip=("extra",), fatal=strict)
    if strict:
        reading.suggest(section, HandlerOptions, "$.handler", skip=("extra",))
    extra = {key: value for key, value in section.items() if key not in known}
    return HandlerOptions(**values, extra=extra)


_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def _read_pt2(reading: Reading, section: object) -> Compilation | None:
    """Reads a backend's name, arguments of ``torch.compile``, or sections compile and export."""
    if section is None:
        return None
    if isinstance(section, str):
        return Compilation(compile=True, options={"backend": section})
    if not isinstance(section, dict):
        reading.problem("$.pt2", "the name of a backend or a mapping", section)
    if not {"compile", "export"} & section.keys():
        _check_options(reading, section, "$.pt2")
        return Compilation(compile=bool(section), options=dict(section))
    compiled = reading.mapping(section, "compile", "$.pt2")
    export = reading.mapping(section, "export", "$.pt2")
    options = {key: value for key, value in compiled.items() if key != "enable"}
    _check_options(reading, options, "$.pt2.compile")
    if compiled and "enable" not in compiled:
        reading.warn("$.pt2.compile", "has no effect without enable: true")
    return Compilation(
        compile=reading.switch(compiled, "enable", "$.pt2.compile"),
        options=options,
        aot_compile=reading.switch(export, "aot_compile", "$.pt2.export"),
    )


def _check_options(reading: Reading, options: dict[str, Any], path: str) -> None:
    backend, mode = options.get("backend"), options.get("mode")
    if backend is not None and not isinstance(backend, str):
        reading.problem(f"{path}.backend", "the name of a torch.compile backend", backend)
    if mode is not None and mode not in _MODES:
        reading.problem(f"{path}.mode", f"one of {', '.join(_MODES)}", mode)


def _check_together(reading: Reading, config: ModelConfig) -> None:
    least, most = config.min_workers, config.max_workers
    if least and most is not None and most < least:
        reading.problem("$.maxWorkers", f"int >= minWorkers, which is {least}", most)
    levels, level = config.priority_levels or 0, config.default_priority_level
    if level is not None and level > levels:
        right = f"int <= priorityLevels, which is {levels}"
        reading.problem("$.defaultPriorityLevel", right, level)
    ranks = config.torchrun.nproc_per_node if config.torchrun else None
    nodes = config.torchrun.nnodes if config.torchrun else None
    if nodes is not None and nodes > 1:
        right = "1: all ranks of a worker run on the server's machine"
        reading.problem("$.torchrun.nnodes", right, nodes)
    if ranks and config.parallel_level and ranks != config.parallel_level:
        right = f"the same as parallelLevel, which is {config.parallel_level}"
        reading.problem("$.torchrun.nproc-per-node", right, ranks)
    asked = ranks or config.parallel_level or config.handler.model_parallel
    if config.parallel_type and not asked:
        hint = "has no effect without parallelLevel or torchrun.nproc-per-node"
        reading.warn("$.parallelType", hint)
    if config.pt2 and config.pt2.compile and config.pt2.aot_compile:
        reading.problem("$.pt2", "either compile.enable or export.aot_compile", "both")
