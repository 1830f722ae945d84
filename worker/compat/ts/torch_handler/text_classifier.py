"""``ts.torch_handler.text_classifier``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.text_classifier import TextClassifier

__all__ = ["TextClassifier"]
