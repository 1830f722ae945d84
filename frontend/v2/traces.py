"""The settings of V2's trace extension: which requests leave a line with their times in the log."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from marserve.frontend.errors import BadRequest

if TYPE_CHECKING:
    from marserve.frontend.model import Model
    from marserve.frontend.types import InferenceRequest

_log = logging.getLogger(__name__)

_DEFAULTS: dict[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
_NUMBERS = {"trace_rate": 1, "trace_count": -1, "log_frequency": 0}
_LEVELS = ("OFF", "TIMESTAMPS", "TENSORS")


class Traces:
    """Settings for all models, and for those that have some of their own."""

    def __init__(self) -> None:
        self._all: dict[str, Any] = dict(_DEFAULTS)
        self._own: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self.on = False

    def values(self, model: str | None = None) -> dict[str, Any]:
        """Returns the settings in force, for a model or for all that have none of their own."""
        return {**self._all, **self._own.get(model or "", {})}

    def change(self, given: dict[str, Any], model: str | None = None) -> dict[str, Any]:
        """Changes settings, all or none; returns those in force.

        Args:
            given: By key; null for the default, or, for a model, what holds for all.
            model: Name; None for all.

        Raises:
            BadRequest: If a key or a value is wrong; naming the key.
        """
        read = {key: _read(key, value) for key, value in given.items()}
        target = self._all if model is None else self._own.setdefault(model, {})
        for key, value in read.items():
            if value is not None:
                target[key] = value
            elif model is None:
                target[key] = _DEFAULTS[key]
            else:
                target.pop(key, None)
        if "trace_count" in read:
            self._written.clear()
        every = [self._all, *self._own.values()]
        self.on = any("OFF" not in each.get("trace_level", ["OFF"]) for each in every)
        return self.values(model)

    def note(self, model: Model, request: InferenceRequest) -> None:
        """Writes a line about an answered request, if it is one of those that are traced.

        Args:
            model: Which answered.
            request: With its times.
        """
        settings = self.values(model.name)
        if "OFF" in settings["trace_level"]:
            return
        seen = self._seen[model.name] = self._seen.get(model.name, 0) + 1
        written, most = self._written.get(model.name, 0), int(settings["trace_count"])
        if seen % int(settings["trace_rate"]) or 0 <= most <= written:
            return
        self._written[model.name] = written + 1
        end = time.monotonic()
        text = "trace: model %s %s, request %s: %d us in the queue, %d us at the worker"
        sent_at = request.sent_at or end
        queue_us, worker_us = (sent_at - request.queued_at) * 1e6, (end - sent_at) * 1e6
        _log.info(text, model.name, model.version, request.id, queue_us, worker_us)
        if "TENSORS" in settings["trace_level"]:
            shown = ", ".join(f"{part.name} {part.content_type}" for part in request.parts)
            _log.info("trace: request %s: %s", request.id, shown)


def _read(key: str, value: Any) -> Any:
    """Checks a value; numbers become texts, as they are told."""
    if key not in _DEFAULTS:
        raise BadRequest(f"{key:.100}: unknown key; known: {', '.join(_DEFAULTS)}")
    if value is None:
        return None
    if key == "trace_level":
        levels = [value] if isinstance(value, str) else value
        if not isinstance(levels, list) or not levels or any(v not in _LEVELS for v in levels):
            raise BadRequest(f"trace_level: expected a list of {', '.join(_LEVELS)}")
        return levels
    if key in _NUMBERS:
        return _number(key, value)
    if value != _DEFAULTS[key]:
        raise BadRequest(f"{key}: traces are lines of the server's log; it cannot be changed")
    return value


def _number(key: str, value: Any) -> str:
    try:
        number = int(value) if isinstance(value, (int, str)) else _NUMBERS[key] - 1
    except ValueError:
        number = _NUMBERS[key] - 1
    if isinstance(value, bool) or not _NUMBERS[key] <= number < 1 << 63:
        raise BadRequest(f"{key}: expected a whole number, {_NUMBERS[key]} or above")
    return str(number)
