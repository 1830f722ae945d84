"""``mlserver.codecs.base64``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.codecs_text import Base64Codec

__all__ = ["Base64Codec"]
