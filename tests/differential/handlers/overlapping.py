"""An async worker: ``async def handle``, one request at a time without waiting for earlier ones.

``wait`` is answered when ``go`` has come; ``stream`` in two pieces; ``refuse`` with 409.
"""

import asyncio

from ts.handler_utils.utils import send_intermediate_predict_response
from ts.service import PredictionException


class OverlappingHandler:
    def initialize(self, context):
        self.gone = asyncio.Event()
        self.initialized = True

    async def handle(self, data, context):
        value = data[0].get("data") or data[0].get("body")
        text = value.decode() if isinstance(value, (bytes, bytearray)) else value
        if text == "go":
            self.gone.set()
        if text == "wait":
            await self.gone.wait()
        if text == "refuse":
            raise PredictionException("not now", 409)
        if text == "stream":
            send_intermediate_predict_response(
                ["first "], context.request_ids, "Intermediate Prediction success", 200, context
            )
        return [f"{text} is done"]
