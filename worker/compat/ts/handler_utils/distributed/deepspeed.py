"""``ts.handler_utils.distributed.deepspeed``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.distributed import get_ds_engine

__all__ = ["get_ds_engine"]
