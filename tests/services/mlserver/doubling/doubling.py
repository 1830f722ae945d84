"""A runtime in the style of MLServer's documentation: an array in, an array out."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Doubling(MLModel):
    async def load(self) -> bool:
        self._factor = (self.settings.parameters.extra or {}).get("factor", 2)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        outputs = []
        for each in payload.inputs:
            array = self.decode(each, default_codec=NumpyCodec)
            outputs.append(NumpyCodec.encode_output(name=each.name, payload=array * self._factor))
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)
