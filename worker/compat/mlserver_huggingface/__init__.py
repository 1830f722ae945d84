"""``mlserver_huggingface``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.huggingface.runtime import HuggingFaceRuntime

__all__ = ["HuggingFaceRuntime"]
