"""``mlserver.handlers``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.routes import custom_handler

__all__ = ["custom_handler"]
