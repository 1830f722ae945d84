"""A runtime whose requests meet: each waits until there are as many as it says."""

import asyncio

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Waiting(MLModel):
    async def load(self) -> bool:
        self._here = 0
        self._changed = asyncio.Condition()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        wanted = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        async with self._changed:
            self._here += 1
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._here >= int(wanted[0]))
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("met", wanted)]
        )

    async def unload(self) -> bool:
        print("waiting is unloaded", flush=True)
        return True
