"""``ts.handler_utils.micro_batching``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.micro_batching import STAGES as HANDLER_METHODS
from marserve.handlers.micro_batching import MicroBatching

__all__ = ["HANDLER_METHODS", "MicroBatching"]
