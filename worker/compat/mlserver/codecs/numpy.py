"""``mlserver.codecs.numpy``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.codecs_numpy import NumpyCodec, NumpyRequestCodec

__all__ = ["NumpyCodec", "NumpyRequestCodec"]
