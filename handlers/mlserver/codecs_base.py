"""What a codec is: from tensors to a runtime's values and back, for one content type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from marserve.handlers.mlserver.errors import CodecError
from marserve.handlers.mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    ResponseOutput,
)


class InputCodec:
    """Reads and writes one tensor.

    Attributes:
        ContentType: Its word for ``content_type``.
        TypeHint: The type of the values that it writes.
    """

    ContentType: ClassVar[str] = ""
    TypeHint: ClassVar[Any] = type(None)

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Whether a value can be written."""
        return False

    @classmethod
    def encode_output(cls, name: str, payload: Any, **kwargs: Any) -> ResponseOutput:
        """Returns a value as an output."""
        raise NotImplementedError(cls.__name__)

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        """Returns the value of an output."""
        raise NotImplementedError(cls.__name__)

    @classmethod
    def encode_input(cls, name: str, payload: Any, **kwargs: Any) -> RequestInput:
        """Returns a value as an input."""
        output = cls.encode_output(name, payload, **kwargs)
        return RequestInput(
            name=output.name,
            shape=output.shape,
            datatype=output.datatype,
            parameters=output.parameters,
            data=output.data,
        )

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns the value of an input."""
        raise NotImplementedError(cls.__name__)

    @classmethod
    def encode(cls, name: str, payload: Any) -> ResponseOutput:
        """The same as ``encode_output``."""
        return cls.encode_output(name, payload)

    @classmethod
    def decode(cls, request_input: RequestInput) -> Any:
        """The same as ``decode_input``."""
        return cls.decode_input(request_input)


class RequestCodec:
    """Reads and writes whole requests and answers.

    Attributes:
        ContentType: Its word for ``content_type``.
        TypeHint: The type of the values that it writes.
    """

    ContentType: ClassVar[str] = ""
    TypeHint: ClassVar[Any] = type(None)

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Whether a value can be written."""
        return False

    @classmethod
    def encode_response(
        cls, model_name: str, payload: Any, model_version: str | None = None, **kwargs: Any
    ) -> InferenceResponse:
        """Returns a value as an answer."""
        raise NotImplementedError(cls.__name__)

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        """Returns the value of an answer."""
        raise NotImplementedError(cls.__name__)

    @classmethod
    def encode_request(cls, payload: Any, **kwargs: Any) -> InferenceRequest:
        """Returns a value as a request."""
        raise NotImplementedError(cls.__name__)

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        """Returns the value of a request."""
        raise NotImplementedError(cls.__name__)

    @classmethod
    def encode(
        cls, model_name: str, payload: Any, model_version: str | None = None
    ) -> InferenceResponse:
        """The same as ``encode_response``."""
        return cls.encode_response(model_name, payload, model_version)

    @classmethod
    def decode(cls, request: InferenceRequest) -> Any:
        """The same as ``decode_request``."""
        return cls.decode_request(request)


class SingleInputRequestCodec(RequestCodec):
    """Reads requests of one input, with the codec of that.

    Attributes:
        InputCodec: Of the one tensor.
    """

    InputCodec: ClassVar[type[InputCodec]] = InputCodec

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Whether a value can be written."""
        return cls.InputCodec.can_encode(payload)

    @classmethod
    def encode_response(
        cls, model_name: str, payload: Any, model_version: str | None = None, **kwargs: Any
    ) -> InferenceResponse:
        """Returns a value as an answer of one output."""
        return InferenceResponse(
            model_name=model_name,
            model_version=model_version,
            parameters=Parameters(content_type=cls.ContentType),
            outputs=[cls.InputCodec.encode_output("output-1", payload, **kwargs)],
        )

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        """Returns the value of an answer of one output."""
        return _decoded_output(cls.InputCodec, cls._only(response.outputs))

    @classmethod
    def encode_request(cls, payload: Any, **kwargs: Any) -> InferenceRequest:
        """Returns a value as a request of one input."""
        return InferenceRequest(
            parameters=Parameters(content_type=cls.ContentType),
            inputs=[cls.InputCodec.encode_input("input-1", payload, **kwargs)],
        )

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        """Returns the value of a request of one input."""
        from marserve.handlers.mlserver.codecs import get_decoded_or_raw, has_decoded

        only = cls._only(request.inputs)
        return get_decoded_or_raw(only) if has_decoded(only) else cls.InputCodec.decode_input(only)

    @classmethod
    def _only(cls, tensors: list[Any]) -> Any:
        if len(tensors) == 1:
            return tensors[0]
        raise CodecError(
            f"The '{cls.ContentType}' codec only supports a single input tensor"
            f" ({len(tensors)} were received)"
        )


def _decoded_output(codec: type[InputCodec], output: ResponseOutput) -> Any:
    return codec.decode_output(output)


def as_input(output: ResponseOutput) -> RequestInput:
    """Returns an output as an input, which has the same fields."""
    return RequestInput(
        name=output.name,
        shape=output.shape,
        datatype=output.datatype,
        parameters=output.parameters,
        data=output.data,
    )


def column_shape(shape: Iterable[int]) -> list[int]:
    """Returns a shape of rows: a vector of n is ``[n, 1]``, a single number ``[1]``."""
    sizes = list(shape)
    return [*sizes, 1] if len(sizes) == 1 else sizes or [1]


def elements(data: Any) -> list[Any]:
    """Returns the elements of text tensors as a list; a lone text is one element."""
    root = data.root
    return [root] if isinstance(root, (str, bytes)) or root is None else list(root)


def decoded(pieces: Iterable[Any], read: Callable[[Any], Any]) -> list[Any]:
    """Returns elements as a codec reads each; what is missing stays so."""
    return [None if piece is None else read(piece) for piece in pieces]
