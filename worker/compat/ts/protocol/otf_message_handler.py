"""``ts.protocol.otf_message_handler``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.streaming import send_intermediate_predict_response

__all__ = ["send_intermediate_predict_response"]
