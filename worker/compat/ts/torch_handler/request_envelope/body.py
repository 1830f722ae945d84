"""``ts.torch_handler.request_envelope.body``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.envelopes import BodyEnvelope

__all__ = ["BodyEnvelope"]
