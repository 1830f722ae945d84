"""``mlserver.codecs.decorator``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.decode_args import decode_args

__all__ = ["decode_args"]
