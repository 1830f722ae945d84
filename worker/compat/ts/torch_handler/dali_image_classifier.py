"""``ts.torch_handler.dali_image_classifier``, the built-in handler of that name."""

from __future__ import annotations

from marserve.handlers.distributed import DaliHandler


class DALIImageClassifier(DaliHandler):
    """Says which package it needs when it is used."""
