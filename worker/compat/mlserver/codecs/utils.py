"""``mlserver.codecs.utils``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.codecs_base import InputCodec, RequestCodec, SingleInputRequestCodec

__all__ = ["InputCodec", "RequestCodec", "SingleInputRequestCodec"]
