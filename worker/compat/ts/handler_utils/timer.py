"""``ts.handler_utils.timer``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.timing import timed

__all__ = ["timed"]
