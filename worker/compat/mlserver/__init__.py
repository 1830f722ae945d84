"""``mlserver``, as runtimes import it."""

from __future__ import annotations

from marserve import __version__
from marserve.handlers.mlserver.metrics import log, register
from marserve.handlers.mlserver.model import MLModel
from marserve.handlers.mlserver.settings import ModelSettings, Settings

__all__ = ["MLModel", "ModelSettings", "Settings", "__version__", "log", "register"]
