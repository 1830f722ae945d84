"""What the describe call says of a model: TorchServe's keys in its order, then ours."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psutil

from marserve.frontend.ranks import plan_ranks

if TYPE_CHECKING:
    from marserve.frontend.model import Model
    from marserve.frontend.workers import Worker

_DETAIL_LINES = 20


def describe_model(model: Model) -> dict[str, Any]:
    """Returns the description of one version of a model; what is not set is left out.

    ``jobQueueSize`` and all that follows it are not TorchServe's.
    """
    archive, settings, yaml = model.archive, model.settings, model.archive.config
    plan = plan_ranks(yaml)
    described = {
        "modelName": model.name,
        "modelVersion": model.version,
        "modelUrl": model.url,
        "runtime": archive.manifest.runtime or "python",
        "minWorkers": model.min_workers,
        "maxWorkers": model.max_workers,
        "batchSize": settings.batch_size,
        "maxBatchDelay": settings.max_batch_delay_ms,
        "responseTimeout": _whole(settings.response_timeout_s),
        "startupTimeout": _whole(settings.startup_timeout_s),
        "maxRetryTimeoutInSec": _whole(settings.retry_window_s),
        "clientTimeoutInMills": round((settings.client_timeout_s or 0) * 1e3),
        "parallelType": plan.kind if plan is not None else yaml.parallel_type or "",
        "parallelLevel": plan.level if plan is not None else yaml.parallel_level or 0,
        "deviceType": settings.device_type,
        "deviceIds": list(settings.device_ids) if settings.device_ids is not None else None,
        "continuousBatching": bool(yaml.continuous_batching),
        "useJobTicket": bool(yaml.use_job_ticket),
        "useVenv": bool(yaml.use_venv),
        "stateful": bool(yaml.sequence_batching),
        "sequenceMaxIdleMSec": yaml.sequence_max_idle_msec or 0,
        "sequenceTimeoutMSec": yaml.sequence_timeout_msec or 0,
        "maxNumSequence": yaml.max_num_sequence or int(bool(yaml.sequence_batching)),
        "maxSequenceJobQueueSize": yaml.max_sequence_job_queue_size
        or int(bool(yaml.sequence_batching)),
        "loadedAtStartup": model.loaded_at_startup,
        "workers": [describe_worker(worker, settings.device_type) for worker in model.pool.workers],
        "jobQueueStatus": {
            "remainingCapacity": model.queue.remaining,
            "pendingRequests": len(model.queue),
        },
        "jobQueueSize": settings.job_queue_size,
        "priorityLevels": settings.priority_levels or None,
        "idleTimeoutSec": settings.idle_timeout_s,
        "dormant": True if model.scaler.dormant else None,
    } | _trouble(model)
    return {name: value for name, value in described.items() if value is not None}


def describe_worker(worker: Worker, device_type: str) -> dict[str, Any]:
    """Returns the description of one worker; ``memoryUsage`` is its resident set, in bytes.

    A worker of several processes has their ids as ``rankPids``, and its memory is theirs together.
    """
    status = "READY" if worker.ready else "LOADING"
    begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(worker.started_at))
    pids = worker.pids
    described = {
        "id": str(worker.number),
        "startTime": f"{begun}.{int(worker.started_at % 1 * 1000):03}Z",
        "status": "UNLOADING" if worker.stopping else status,
        "memoryUsage": sum(map(_resident_bytes, pids)),
        "pid": pids[0] if pids else 0,
        "gpu": device_type == "gpu",
        "gpuUsage": "N/A",
    }
    return described | ({"rankPids": pids} if len(pids) > 1 else {})


def _trouble(model: Model) -> dict[str, Any]:
    """How the last worker ended that was wanted, and why others are missing, if there are any."""
    error, death = model.pool.last_error, model.pool.last_death
    told: dict[str, Any] = {}
    if death is not None:
        told["lastDeath"] = {
            "worker": death.worker,
            "cause": death.cause,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(death.at)),
            "lastLines": death.last_lines,
        }
    if error is None or model.pool.ready >= model.min_workers:
        return told
    return told | {
        "lastError": str(error),
        "lastErrorDetail": error.detail.strip().splitlines()[-_DETAIL_LINES:],
    }


def _resident_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss) if pid > 0 else 0
    except psutil.Error:
        return 0


def _whole(seconds: float) -> int | float:
    return int(seconds) if float(seconds).is_integer() else seconds
