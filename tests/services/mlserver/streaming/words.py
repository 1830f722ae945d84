"""A runtime that answers in pieces, word by word."""

from collections.abc import AsyncIterator

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Words(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        return self._answer(self._text(payload))

    async def predict_stream(
        self, payloads: AsyncIterator[InferenceRequest]
    ) -> AsyncIterator[InferenceResponse]:
        payload = await anext(payloads)
        for word in self._text(payload).split():
            if word == "stop":
                raise RuntimeError("no more words")
            yield self._answer(word)

    def _text(self, payload: InferenceRequest) -> str:
        return StringCodec.decode_input(payload.inputs[0])[0]

    def _answer(self, text: str) -> InferenceResponse:
        output = StringCodec.encode_output(name="word", payload=[text])
        return InferenceResponse(model_name=self.name, outputs=[output])
