"""``ts.torch_handler.request_envelope.base``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.envelopes import BaseEnvelope

__all__ = ["BaseEnvelope"]
