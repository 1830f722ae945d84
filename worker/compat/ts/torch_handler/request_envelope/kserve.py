"""``ts.torch_handler.request_envelope.kserve``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.envelopes import KServeEnvelope as KserveEnvelope

__all__ = ["KserveEnvelope"]
