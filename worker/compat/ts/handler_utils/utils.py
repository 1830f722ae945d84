"""``ts.handler_utils.utils``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.introspection import import_class
from marserve.handlers.streaming import send_intermediate_predict_response

__all__ = ["import_class", "send_intermediate_predict_response"]
