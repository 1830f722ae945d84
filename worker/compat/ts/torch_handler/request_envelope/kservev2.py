"""``ts.torch_handler.request_envelope.kservev2``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.envelopes import KServev2Envelope as KServev2Envelope

__all__ = ["KServev2Envelope"]
