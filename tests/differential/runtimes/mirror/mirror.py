"""Every input comes back as an output; some texts ask for errors."""

from mlserver import MLModel
from mlserver.errors import MLServerError
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Mirror(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        outputs = []
        for each in payload.inputs:
            if "raise" in each.data.root:
                raise ValueError("the model was asked to raise")
            if "refuse" in each.data.root:
                raise MLServerError("the text is refused", 409)
            output = ResponseOutput(
                name=each.name, shape=each.shape, datatype=each.datatype, data=each.data
            )
            outputs.append(output)
        return InferenceResponse(
            id=payload.id, model_name=self.name, model_version=self.version, outputs=outputs
        )
