"""``ts.torch_handler.object_detector``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.object_detector import ObjectDetector

__all__ = ["ObjectDetector"]
