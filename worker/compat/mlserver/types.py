"""``mlserver.types``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver import types as _types
from marserve.handlers.mlserver.types import *  # noqa: F403

__all__ = list(_types.__all__)
