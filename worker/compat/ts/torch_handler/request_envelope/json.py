"""``ts.torch_handler.request_envelope.json``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.envelopes import JSONEnvelope

__all__ = ["JSONEnvelope"]
