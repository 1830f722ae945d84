"""``mlserver.codecs.string``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.codecs_text import StringCodec, StringRequestCodec

__all__ = ["StringCodec", "StringRequestCodec"]
