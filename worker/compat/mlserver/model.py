"""``mlserver.model``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.model import MLModel

__all__ = ["MLModel"]
