"""``ts.torch_handler.distributed.base_pippy_handler``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.distributed import BasePippyHandler

__all__ = ["BasePippyHandler"]
