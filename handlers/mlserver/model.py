"""``mlserver.MLModel``: what runtimes derive from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from marserve.handlers.mlserver import codecs
from marserve.handlers.mlserver.errors import CodecNotFound
from marserve.handlers.mlserver.settings import ModelSettings
from marserve.handlers.mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    MetadataModelResponse,
    MetadataTensor,
    RequestInput,
    RequestOutput,
    ResponseOutput,
)


class MLModel:
    """A model: subclasses load it and answer requests.

    Args:
        settings: The model-settings.json.

    Attributes:
        ready: Whether ``load`` said that it serves.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._inputs = {each.name: each for each in settings.inputs}
        self._outputs = {each.name: each for each in settings.outputs}
        self.ready = False

    async def load(self) -> bool:
        """Loads the model; returns whether it serves."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answers a request."""
        raise NotImplementedError("predict() method not implemented")

    async def predict_stream(
        self, payloads: AsyncIterator[InferenceRequest]
    ) -> AsyncIterator[InferenceResponse]:
        """Answers in pieces; unless a subclass does better, in one."""
        async for payload in payloads:
            yield await self.predict(payload)

    async def unload(self) -> bool:
        """Called when the model is served no more."""
        return True

    @property
    def name(self) -> str:
        """Of the model."""
        return self._settings.name

    @property
    def version(self) -> str | None:
        """Of the model, None if it has none."""
        return self._settings.version

    @property
    def settings(self) -> ModelSettings:
        """The model-settings.json."""
        return self._settings

    @property
    def inputs(self) -> list[MetadataTensor]:
        """What the model says of its inputs."""
        return self._settings.inputs

    @inputs.setter
    def inputs(self, value: list[MetadataTensor]) -> None:
        self._settings.inputs = value
        self._inputs = {each.name: each for each in self._settings.inputs}

    @property
    def outputs(self) -> list[MetadataTensor]:
        """What the model says of its outputs."""
        return self._settings.outputs

    @outputs.setter
    def outputs(self, value: list[MetadataTensor]) -> None:
        self._settings.outputs = value
        self._outputs = {each.name: each for each in self._settings.outputs}

    async def metadata(self) -> MetadataModelResponse:
        """Returns what the model says of itself."""
        return MetadataModelResponse(
            name=self.name,
            platform=self._settings.platform,
            versions=self._settings.versions,
            inputs=self.inputs,
            outputs=self.outputs,
        )

    def decode(self, request_input: RequestInput, default_codec: Any = None) -> Any:
        """Returns an input as its content type says, else as the default does, else its data.

        Raises:
            CodecError: If it cannot be read so.
        """
        if codecs.has_decoded(request_input):
            return codecs.get_decoded(request_input)
        value = codecs.decode_request_input(request_input, self._inputs)
        if codecs.has_decoded(request_input):
            return value
        if default_codec is not None:
            return default_codec.decode_input(request_input)
        return request_input.data

    def decode_request(self, inference_request: InferenceRequest, default_codec: Any = None) -> Any:
        """Returns a request as its content type says, else as the default does, else itself.

        Raises:
            CodecError: If it cannot be read so.
        """
        parameters = self._settings.parameters
        value = codecs.decode_inference_request(
            inference_request,
            self._settings if parameters is not None and parameters.content_type else None,
            self._inputs,
        )
        if value is inference_request and default_codec is not None:
            return default_codec.decode_request(inference_request)
        return value

    def encode(
        self, payload: Any, request_output: RequestOutput, default_codec: Any = None
    ) -> ResponseOutput:
        """Returns a value as the output asked for.

        Raises:
            CodecNotFound: If nothing can write it.
        """
        declared = self._outputs.get(request_output.name)
        if codecs.content_type_of(request_output, declared) is None and default_codec is not None:
            output: ResponseOutput = default_codec.encode_output(request_output.name, payload)
            return output
        found = codecs.encode_response_output(payload, request_output, self._outputs)
        if found is None:
            raise CodecNotFound(name=request_output.name)
        return found

    def encode_response(self, payload: Any, default_codec: Any = None) -> InferenceResponse:
        """Returns a value as an answer.

        Raises:
            CodecNotFound: If nothing can write it.
        """
        if default_codec is not None:
            answer: InferenceResponse = default_codec.encode_response(
                self.name, payload, self.version
            )
            return answer
        found = codecs.encode_inference_response(payload, self._settings)
        if found is None:
            raise CodecNotFound(payload_type=str(type(payload)), is_request=True)
        return found
