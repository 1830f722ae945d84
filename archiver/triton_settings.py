"""How a config.pbtxt wants its model to be served, as the keys of model-config.yaml say it."""

from __future__ import annotations

import math
from typing import Any

from marserve.archiver.triton_config import TritonConfig

_DEFAULT_IDLE_US = 1_000_000  # of sequences
_QUEUE_SIZE = 10_000  # where the configuration gives no bound
_ACTIONS = {"REJECT": "reject", "DELAY": "delay"}


def model_settings(config: TritonConfig, backend: str) -> dict[str, Any]:
    """Returns the keys of model-config.yaml that mean the same.

    Args:
        config: Completed; keys without effect here are added to its warnings.
        backend: Which runs the model.

    Raises:
        ConfigError: If keys do not go together, or ask for what is not served.
    """
    plain = config.plain
    _check_parameters(config, backend)
    for key in ("batch_input", "batch_output"):
        if plain.get(key):
            config.refuse(key, "ragged batches with tensors of their own are not served")
    if "ensemble_scheduling" in plain and backend != "ensemble":
        config.refuse("ensemble_scheduling", 'expected platform: "ensemble" with it')
    settings: dict[str, Any] = {"batchSize": 1, "maxBatchDelay": 0, "jobQueueSize": _QUEUE_SIZE}
    if backend == "ensemble":
        return settings | _cache(config)
    settings |= _instances(config) | _cache(config)
    if "sequence_batching" in plain:
        if "dynamic_batching" in plain:
            config.refuse("sequence_batching", "cannot be together with dynamic_batching")
        return settings | _sequences(config)
    if decoupled(plain):
        if backend != "python":
            config.refuse(
                "model_transaction_policy.decoupled", f"backend {backend} is not decoupled"
            )
        settings["asyncCommunication"] = True
        if "dynamic_batching" in plain:
            config.warn(
                "dynamic_batching", "a decoupled model gets each request as it comes, by itself"
            )
    elif "dynamic_batching" in plain:
        settings |= _batching(config)
    return settings


def _check_parameters(config: TritonConfig, backend: str) -> None:
    """Python models read theirs themselves; of the others, the engine would."""
    for name in config.plain.get("parameters", {}):
        if name == "EXECUTION_ENV_PATH":
            text = "EXECUTION_ENV_PATH has no effect: install its packages for the server's Python"
            config.warn("parameters", text)
        elif backend not in ("python", "ensemble"):
            config.warn("parameters", f"{name} has no effect: the engine's own settings are used")


def decoupled(plain: dict[str, Any]) -> bool:
    """Tells whether a model sends any number of answers to a request."""
    return bool(plain.get("model_transaction_policy", {}).get("decoupled"))


def _cache(config: TritonConfig) -> dict[str, Any]:
    if not config.plain.get("response_cache", {}).get("enable"):
        return {}
    if decoupled(config.plain):
        config.refuse("response_cache", "answers of a decoupled model are not kept")
    return {"responseCache": True}


def _instances(config: TritonConfig) -> dict[str, Any]:
    groups = [g for g in config.plain.get("instance_group", []) if not g["passive"]]
    if len(groups) < len(config.plain.get("instance_group", [])):
        config.warn("instance_group", "passive instances are not started")
    count, devices, kinds = 0, list[int](), set[str]()
    for number, group in enumerate(groups):
        if group["count"] < 0:
            config.refuse(f"instance_group[{number}].count", "expected 1 or more")
        gpus = group.get("gpus", [])
        if gpus and group["kind"] == "KIND_CPU":
            config.refuse(f"instance_group[{number}].gpus", "KIND_CPU has none")
        count += (group["count"] or 1) * max(1, len(gpus))
        devices += [gpu for gpu in gpus if gpu not in devices]
        kinds.add(group["kind"])
    workers = count or 1
    settings: dict[str, Any] = {"minWorkers": workers, "maxWorkers": workers}
    if kinds == {"KIND_CPU"}:
        settings["deviceType"] = "cpu"
    elif "KIND_GPU" in kinds:
        settings["deviceType"] = "gpu"
        if "KIND_CPU" in kinds:
            config.warn("instance_group", "all instances run on GPUs, where there are any")
    if devices:
        settings["deviceIds"] = devices
    return settings


def _batching(config: TritonConfig) -> dict[str, Any]:
    most, given = config.plain["max_batch_size"], config.plain["dynamic_batching"]
    if not most:
        config.warn("dynamic_batching", "has no effect without max_batch_size")
        return {}
    preferred = sorted(set(given.get("preferred_batch_size", [])))
    if wrong := [size for size in preferred if not 0 < size <= most]:
        config.refuse(
            "dynamic_batching.preferred_batch_size",
            f"expected 1 to max_batch_size, which is {most}; got {wrong[0]}",
        )
    delay_us = given.get("max_queue_delay_microseconds", 0)
    levels = given.get("priority_levels", 0)
    section = {
        "preferredBatchSize": preferred,
        "maxQueueDelayMicroseconds": delay_us,
        "defaultQueuePolicy": _policy(given.get("default_queue_policy", {})),
        "priorityQueuePolicy": {
            str(level): _policy(policy)
            for level, policy in given.get("priority_queue_policy", {}).items()
        },
    }
    policy = given.get("default_queue_policy", {})
    settings: dict[str, Any] = {
        "jobQueueSize": policy.get("max_queue_size", 0) or _QUEUE_SIZE,
        "batchSize": most,
        "maxBatchDelay": math.ceil(delay_us / 1000),
        "dynamicBatching": section,
    }
    if levels:
        settings["jobQueueSize"] = _QUEUE_SIZE  # the policies bound each level by itself
        settings["priorityLevels"] = levels
        default = given.get("default_priority_level", 0)
        if not 0 < default <= levels:
            config.refuse(
                "dynamic_batching.default_priority_level",
                f"expected 1 to priority_levels, which is {levels}; got {default}",
            )
        settings["defaultPriorityLevel"] = default
    return settings


def _policy(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "timeoutAction": _ACTIONS[given.get("timeout_action", "REJECT")],
        "defaultTimeoutMicroseconds": given.get("default_timeout_microseconds", 0),
        "allowTimeoutOverride": given.get("allow_timeout_override", False),
        "maxQueueSize": given.get("max_queue_size", 0),
    }


def _sequences(config: TritonConfig) -> dict[str, Any]:
    given, most = config.plain["sequence_batching"], config.plain["max_batch_size"]
    if given.get("iterative_sequence") or given.get("generative_sequence"):
        config.refuse(
            "sequence_batching.iterative_sequence",
            "is not served: a request that is scheduled again and again needs Triton's scheduler",
        )
    instances = _instances(config)["maxWorkers"]
    rows = max(1, most)
    candidates = given.get("oldest", {}).get("max_candidate_sequences", 0) or rows
    idle_us = given.get("max_sequence_idle_microseconds", 0) or _DEFAULT_IDLE_US
    return {
        "sequenceBatching": True,
        "batchSize": rows,
        "maxNumSequence": candidates * instances,
        "maxSequenceJobQueueSize": 1000,
        "sequenceMaxIdleMSec": math.ceil(idle_us / 1000),
    }
