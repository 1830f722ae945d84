"""``mlserver.settings``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.settings import ModelParameters, ModelSettings, Settings

__all__ = ["ModelParameters", "ModelSettings", "Settings"]
