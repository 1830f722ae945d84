"""``ts.torch_handler.image_classifier``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.image_classifier import ImageClassifier

__all__ = ["ImageClassifier"]
