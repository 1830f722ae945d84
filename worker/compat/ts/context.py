"""``ts.context``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.context import Context, RequestProcessor

__all__ = ["Context", "RequestProcessor"]
