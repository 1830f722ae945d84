"""``ts.torch_handler.text_handler``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.text_handler import TextHandler

__all__ = ["TextHandler"]
