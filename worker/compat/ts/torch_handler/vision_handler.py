"""``ts.torch_handler.vision_handler``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.vision_handler import VisionHandler

__all__ = ["VisionHandler"]
