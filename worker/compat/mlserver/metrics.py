"""``mlserver.metrics``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.metrics import log, register

__all__ = ["log", "register"]
