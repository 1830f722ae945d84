"""How long the stages of a handler take: its methods are measured where they are called."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, cast

STAGES = ("preprocess", "inference", "postprocess", "encode")
"""What is measured in a worker, in the order in which the wire numbers it."""

ENCODE = STAGES.index("encode")

Spans = list[tuple[int, float]]
"""Calls of stages: which one, and its seconds. Appending is safe from any thread."""


class _Timed:
    """A bound method that notes how long each call takes; otherwise it is that method."""

    __slots__ = ("_method", "_note", "_stage")

    def __init__(self, method: Callable[..., Any], stage: int, spans: Spans) -> None:
        self._method = method
        self._stage = stage
        self._note = spans.append

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self._method(*args, **kwargs)
        finally:
            self._note((self._stage, time.perf_counter() - begin))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """A handler that is copied or pickled takes its plain method along."""
        method: Any = self._method
        return getattr, (method.__self__, method.__name__)


def watch(handle: object, spans: Spans) -> None:
    """Has every call of a handler's stages noted, wherever it comes from.

    Args:
        handle: The handler's entry point: its method ``handle``, or what stands in for that, such
            as ``MicroBatching``. Nothing happens to a function, or to what has no stages.
        spans: Gets a pair for each call.
    """
    handler = getattr(handle, "__self__", None) or getattr(handle, "handler", None)
    for stage, name in enumerate(STAGES[:ENCODE]):
        method = getattr(handler, name, None)
        if inspect.ismethod(method) and method.__self__ is handler:
            timed = _awaited if inspect.iscoroutinefunction(method) else _Timed
            try:
                setattr(handler, name, timed(method, stage, spans))
            except AttributeError:  # a class with slots
                return


def _awaited(method: Callable[..., Any], stage: int, spans: Spans) -> Callable[..., Any]:
    @functools.wraps(method)
    async def measured(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return await method(*args, **kwargs)
        finally:
            spans.append((stage, time.perf_counter() - begin))

    return cast("Callable[..., Any]", measured)
