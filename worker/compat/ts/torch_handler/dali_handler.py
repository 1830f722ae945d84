"""``ts.torch_handler.dali_handler``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.distributed import DaliHandler as DALIHandler

__all__ = ["DALIHandler"]
