"""``mlserver.codecs.base``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.codecs_base import InputCodec, RequestCodec

__all__ = ["InputCodec", "RequestCodec"]
