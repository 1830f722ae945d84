"""``ts.torch_handler.densenet_handler``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.densenet_handler import DenseNetHandler

__all__ = ["DenseNetHandler"]
