"""``ts.handler_utils.distributed.pt_pippy``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.distributed import get_pipeline_driver, initialize_rpc_workers

__all__ = ["get_pipeline_driver", "initialize_rpc_workers"]
