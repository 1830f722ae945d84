"""``mlserver.version``, as runtimes import it."""

from __future__ import annotations

from marserve import __version__

__all__ = ["__version__"]
