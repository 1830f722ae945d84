"""``ts.torch_handler.image_segmenter``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.image_segmenter import ImageSegmenter

__all__ = ["ImageSegmenter"]
