"""A runtime with adaptive batching: its answer tells how many rows it was given together."""

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Rows(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        array = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        if (array < 0).any():
            raise ValueError("there is a negative number")
        together = np.full((len(array), 1), len(array), dtype=np.int64)
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                NumpyCodec.encode_output("sum", array.sum(axis=1, keepdims=True)),
                NumpyCodec.encode_output("together", together),
            ],
        )
