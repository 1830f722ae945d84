"""``mlserver.logging``, as runtimes import it."""

from __future__ import annotations

import logging

logger = logging.getLogger("mlserver")


def get_logger() -> logging.Logger:
    """Returns the logger; what it gets is in the model log."""
    return logger


__all__ = ["get_logger", "logger"]
