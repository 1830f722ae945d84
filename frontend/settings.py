"""How one version of a model is served: the values in force after all sources have had their say.

Batch size and delay: register call, then model-config.yaml, then ``models`` of config.properties,
then the default. Worker counts: model-config.yaml, where valid, wins over the register call.
A snapshot wins over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from marserve.archiver.model_config import DynamicBatching, ModelConfig
from marserve.frontend.model_defaults import ModelDefaults
from marserve.frontend.ranks import plan_ranks
from marserve.frontend.sequences import SequenceSettings

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.registration import Registration

_DEFAULT_DELAY_MS = 100
_DEFAULT_RETRY_WINDOW_S = 300
_DEFAULT_SCALE_DOWN_IDLE_S = 60
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Values in force for one version of a model.

    Args:
        max_batch_delay_ms: Longest time for which a request waits for company.
        response_timeout_s: For one batch in the worker.
        startup_timeout_s: For one worker to load.
        client_timeout_s: From arrival to answer, queue included; None for no limit.
        retry_window_s: Workers whose load fails are tried again for this long.
        retry_in_flight: Whether requests of a worker that died run again on another.
        priority_levels: 0 for none.
        default_priority_level: Of requests that name none.
        use_job_ticket: Whether requests are refused unless a worker is free.
        scale_down_idle_s: A worker beyond the least number that is idle for so long is given up.
        max_requests_per_worker: A worker that has had so many is replaced; None for never.
        max_worker_memory_mb: So is one whose resident set, in MiB, is larger.
        idle_timeout_s: All workers are, if the model is idle for so long; None for never.
        handler: What the register call put in the place of the archive's handler; None for nothing.
        asynchronous: Whether the handler is a coroutine function, whose requests run as tasks.
        concurrency: How many requests a worker runs at the same time; 0 for one batch at a time.
        sequences: How stateful sequences are served; None for none.
        dynamic_batching: How the queue makes batches; None for the usual way.
    """

    min_workers: int
    max_workers: int
    batch_size: int
    max_batch_delay_ms: int
    response_timeout_s: float
    startup_timeout_s: float
    job_queue_size: int
    client_timeout_s: float | None = None
    retry_window_s: float = _DEFAULT_RETRY_WINDOW_S
    retry_in_flight: bool = True
    use_job_ticket: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    scale_down_idle_s: float = _DEFAULT_SCALE_DOWN_IDLE_S
    idle_timeout_s: float | None = None
    max_requests_per_worker: int | None = None
    max_worker_memory_mb: int | None = None
    device_type: str = "cpu"
    device_ids: tuple[int, ...] | None = None
    handler: str | None = None
    asynchronous: bool = False
    concurrency: int = 0
    sequences: SequenceSettings | None = None
    dynamic_batching: DynamicBatching | None = None


def resolve_settings(
    registration: Registration,
    yaml: ModelConfig,
    properties: ModelDefaults,
    server: ServerConfig,
) -> ModelSettings:
    """Returns the values in force.

    Args:
        registration: What the register call, or the start of the server, asks for.
        yaml: The archive's model-config.yaml.
        properties: This version's entry of ``models`` in config.properties.
        server: Server-wide defaults.
    """
    given = registration
    low, high = _for_devices(_workers(registration, yaml, properties, server), yaml, server)
    batch_size = _first(given.batch_size, yaml.batch_size, properties.batch_size, 1)
    queue_size = _first(yaml.job_queue_size or None, server.job_queue_size)
    levels = yaml.priority_levels or 0
    return ModelSettings(
        min_workers=low,
        max_workers=high,
        batch_size=batch_size,
        max_batch_delay_ms=_first(
            given.max_batch_delay,
            yaml.max_batch_delay,
            properties.max_batch_delay,
            _DEFAULT_DELAY_MS,
        ),
        response_timeout_s=_first(
            given.response_timeout,
            yaml.response_timeout,
            properties.response_timeout,
            server.default_response_timeout,
        ),
        startup_timeout_s=_first(
            given.startup_timeout,
            yaml.startup_timeout,
            properties.startup_timeout,
            server.default_startup_timeout,
        ),
        job_queue_size=queue_size,
        client_timeout_s=(yaml.client_timeout_in_mills or 0) / 1000 or None,
        retry_window_s=_first(yaml.max_retry_timeout_in_sec, _DEFAULT_RETRY_WINDOW_S),
        retry_in_flight=_first(yaml.retry_in_flight, True),
        use_job_ticket=bool(yaml.use_job_ticket),
        priority_levels=levels,
        default_priority_level=yaml.default_priority_level or levels // 2 + 1,
        scale_down_idle_s=_first(yaml.scale_down_idle_sec, _DEFAULT_SCALE_DOWN_IDLE_S),
        max_requests_per_worker=yaml.max_requests_per_worker or None,
        max_worker_memory_mb=yaml.max_worker_memory_mb or None,
        idle_timeout_s=yaml.idle_timeout_sec or None,
        device_type="gpu" if server.number_of_gpu and yaml.device_type != "cpu" else "cpu",
        device_ids=tuple(yaml.device_ids) if yaml.device_ids else None,
        handler=given.handler,
        asynchronous=bool(yaml.async_communication),
        concurrency=_concurrency(yaml, batch_size, queue_size),
        sequences=_sequences(yaml, server) if yaml.sequence_batching else None,
        dynamic_batching=yaml.dynamic_batching,
    )


def _concurrency(yaml: ModelConfig, batch_size: int, queue_size: int) -> int:
    """A coroutine waits for others most of the time, so as many run as may wait in the queue."""
    if yaml.async_communication:
        return queue_size
    if not yaml.continuous_batching:
        return 0
    return 2 * batch_size if yaml.sequence_batching else batch_size


def _sequences(yaml: ModelConfig, server: ServerConfig) -> SequenceSettings:
    idle_ms, total_ms = yaml.sequence_max_idle_msec, yaml.sequence_timeout_msec
    return SequenceSettings(
        most=yaml.max_num_sequence or 1,
        queue_size=yaml.max_sequence_job_queue_size or 1,
        idle_s=idle_ms / 1000 if idle_ms else float("inf"),
        total_s=total_ms / 1000 if total_ms else float("inf"),
        id=server.ts_header_key_sequence_id,
        start=server.ts_header_key_sequence_start,
        end=server.ts_header_key_sequence_end,
    )


def _workers(
    registration: Registration,
    yaml: ModelConfig,
    properties: ModelDefaults,
    server: ServerConfig,
) -> tuple[int, int]:
    if registration.workers is not None:
        return registration.workers
    low, high = yaml.min_workers or 0, yaml.max_workers or 0
    if low > 0 and high >= low:
        return low, high
    if registration.initial_workers is not None:
        return registration.initial_workers, registration.initial_workers
    if registration.at_startup:
        low = properties.min_workers or 0
        high = properties.max_workers or low
        default = server.default_workers_per_model or server.number_of_gpu or 1
        return (low, high) if low else (default, default)
    return server.default_workers_per_model, server.default_workers_per_model


def _for_devices(
    workers: tuple[int, int], yaml: ModelConfig, server: ServerConfig
) -> tuple[int, int]:
    """No more workers than there are GPUs for, but one, where each needs several."""
    if not server.number_of_gpu or yaml.device_type == "cpu":
        return workers
    devices = len(yaml.device_ids) if yaml.device_ids else server.number_of_gpu
    plan = plan_ranks(yaml, devices)
    if plan is None:
        return workers
    most = max(1, devices // plan.level)
    return min(workers[0], most), min(workers[1], most)


def _first(*values: T | None) -> T:
    """Returns the first value that was given."""
    return next(v for v in values if v is not None)
