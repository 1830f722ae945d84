"""``mlserver.codecs.pandas``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.codecs_pandas import PandasCodec

__all__ = ["PandasCodec"]
