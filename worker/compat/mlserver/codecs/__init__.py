"""``mlserver.codecs``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver import codecs as _codecs
from marserve.handlers.mlserver.codecs import *  # noqa: F403

__all__ = list(_codecs.__all__)
