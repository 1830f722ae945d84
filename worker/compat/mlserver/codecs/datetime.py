"""``mlserver.codecs.datetime``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.codecs_text import DatetimeCodec

__all__ = ["DatetimeCodec"]
