"""Statistics of models as V2 tells them: counts and nanoseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marserve.frontend.model import Model
    from marserve.frontend.registry import Registry

Duration = dict[str, int]


def model_statistics(
    registry: Registry, name: str | None = None, version: str | None = None
) -> dict[str, Any]:
    """Returns the statistics of models.

    Args:
        registry: Of the models.
        name: None for all models.
        version: None for all versions.

    Raises:
        ModelNotFound: If there is no such model.
        VersionNotFound: If it has no such version.
    """
    if name is None:
        names = [each.name for each in registry.default_models()]
        models = [model for each in names for model in registry.versions(each)]
    elif version:
        models = [registry.resolve(name, version)]
    else:
        models = registry.versions(name)
    return {"model_stats": [_statistics(model) for model in models]}


def _statistics(model: Model) -> dict[str, Any]:
    sums = model.statistics
    done = sums.successes
    hits: tuple[int, int] = getattr(model, "hits", (0, 0))  # of models that keep answers
    misses: tuple[int, int] = getattr(model, "misses", (0, 0))
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(sums.last_at * 1e3),
        "inference_count": sums.rows,
        "execution_count": int(sum(each[0] for each in sums.batches.values())),
        "inference_stats": {
            "success": _duration(done + hits[0], sums.success_s + hits[1] / 1e9),
            "fail": _duration(sums.failures, sums.failure_s),
            "queue": _duration(done, sums.queue_s),
            "compute_input": _duration(done, 0.0),
            "compute_infer": _duration(done, sums.handler_s),
            "compute_output": _duration(done, sums.transport_s),
            "cache_hit": {"count": hits[0], "ns": hits[1]},
            "cache_miss": {"count": misses[0], "ns": misses[1]},
        },
        "response_stats": {},
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": _duration(int(count), 0.0),
                "compute_infer": _duration(int(count), handler_s),
                "compute_output": _duration(int(count), transport_s),
            }
            for rows, (count, handler_s, transport_s) in sorted(sums.batches.items())
        ],
        "memory_usage": [],
    }


def _duration(count: int, seconds: float) -> Duration:
    return {"count": count, "ns": max(0, round(seconds * 1e9))}
