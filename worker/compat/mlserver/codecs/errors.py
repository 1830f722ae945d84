"""``mlserver.codecs.errors``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.errors import CodecError, CodecNotFound

__all__ = ["CodecError", "CodecNotFound"]
