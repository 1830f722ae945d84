"""``ts.metrics.process_memory_metric``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.process_memory import check_process_mem_usage, get_cpu_usage

__all__ = ["check_process_mem_usage", "get_cpu_usage"]
