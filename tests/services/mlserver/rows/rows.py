"""A runtime with adaptive batching: its answer tells how many rows it was given together."""

import time
from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Rows(MLModel):
    def _wait_for_gate(self) -> None:
        """Keeps its batch, and so the worker, until there is a file named gate."""
        while not (Path(__file__).parent / "gate").exists():
            time.sleep(0.01)

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        array = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        if (array == 1000).any():
            self._wait_for_gate()
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
