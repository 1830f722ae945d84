"""``ts.torch_handler.base_handler``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.base import BaseHandler

__all__ = ["BaseHandler"]
