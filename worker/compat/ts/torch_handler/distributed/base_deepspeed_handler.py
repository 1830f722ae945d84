"""``ts.torch_handler.distributed.base_deepspeed_handler``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.distributed import BaseDeepSpeedHandler

__all__ = ["BaseDeepSpeedHandler"]
