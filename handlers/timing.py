"""``@timed``: how long a handler's method takes, as a metric."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def timed(method: Method) -> Method:
    """Makes a method report the gauge ``ts_handler_<method>``, in milliseconds.

    It does so where model-config.yaml says ``handler: {profile: true}``, and costs next to nothing
    elsewhere.

    Args:
        method: Of a handler that has ``context``.
    """
    name = f"ts_handler_{method.__name__}"

    @functools.wraps(method)
    def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
        context: Any = getattr(self, "context", None)
        if not _wanted(context):
            return method(self, *args, **kwargs)
        begin = time.perf_counter()
        result = method(self, *args, **kwargs)
        elapsed_ms = (time.perf_counter() - begin) * 1e3
        context.metrics.add_time(name, round(elapsed_ms, 3), None, "ms")
        return result

    return cast("Method", measured)


def _wanted(context: Any) -> bool:
    config = getattr(context, "model_yaml_config", None)
    settings = config.get("handler") if isinstance(config, dict) else None
    return isinstance(settings, dict) and bool(settings.get("profile"))
