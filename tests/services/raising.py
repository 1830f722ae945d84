"""Fails on demand; the text of the body says how.

``ok`` answers ``fine``; ``value`` raises ``ValueError("the value is wrong")``; ``prediction``
raises ``PredictionException("Some Prediction Error", 599)``; ``memory`` raises
``MemoryError``; ``cuda`` raises ``RuntimeError("CUDA error: out of memory")``;
``key`` raises ``KeyError("absent")``;
``deep`` recurses without end. One bad request makes the whole ``handle`` call fail.
"""

from ts.torch_handler.base_handler import BaseHandler
from ts.utils.util import PredictionException


class RaisingHandler(BaseHandler):
    def initialize(self, context):
        self.initialized = True

    def handle(self, data, context):
        return [self.answer(row.get("data") or row.get("body")) for row in data]

    def answer(self, value):
        wish = value.decode() if isinstance(value, (bytes, bytearray)) else value
        if wish == "value":
            raise ValueError("the value is wrong")
        if wish == "prediction":
            raise PredictionException("Some Prediction Error", 599)
        if wish == "memory":
            raise MemoryError
        if wish == "cuda":
            raise RuntimeError("CUDA error: out of memory")
        if wish == "key":
            return {}["absent"]
        if wish == "deep":
            return self.answer(wish)
        return "fine"
