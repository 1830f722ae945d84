"""``mlserver.codecs``: which codec reads a request and writes an answer.

The content type that the request names wins, then the one of the tensor, then the one that the
model's metadata declares, then the runtime's own default.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from marserve.handlers.mlserver.codecs_base import InputCodec, RequestCodec
from marserve.handlers.mlserver.codecs_numpy import NumpyCodec, NumpyRequestCodec
from marserve.handlers.mlserver.codecs_pandas import PandasCodec
from marserve.handlers.mlserver.codecs_text import (
    Base64Codec,
    DatetimeCodec,
    StringCodec,
    StringRequestCodec,
)
from marserve.handlers.mlserver.errors import CodecError
from marserve.handlers.mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
)

DecodedParameterName = "_decoded_payload"
InputCodecLike = type[InputCodec] | InputCodec
RequestCodecLike = type[RequestCodec] | RequestCodec

_inputs: dict[str, Any] = {}
_requests: dict[str, Any] = {}


def register_input_codec(codec: Any) -> Any:
    """Makes a codec known under its content type; a decorator of its class."""
    _inputs[codec.ContentType] = codec
    return codec


def register_request_codec(codec: Any) -> Any:
    """Makes a codec of whole requests known under its content type; a decorator of its class."""
    _requests[codec.ContentType] = codec
    json_type = getattr(codec, "JsonContentType", None)
    if json_type:
        _requests[json_type] = codec
    return codec


for _codec in (NumpyCodec, StringCodec, Base64Codec, DatetimeCodec):
    register_input_codec(_codec)
for _whole in (NumpyRequestCodec, StringRequestCodec, PandasCodec):
    register_request_codec(_whole)


def find_input_codec(
    content_type: str | None = None, payload: Any = None, hint: Any = None
) -> Any | None:
    """Returns the codec of a tensor by content type, value or type hint; None if none fits."""
    if content_type is not None:
        return _inputs.get(content_type)
    if hint is not None:
        return next((codec for codec in _inputs.values() if _same(codec.TypeHint, hint)), None)
    return next((codec for codec in _inputs.values() if codec.can_encode(payload)), None)


def find_request_codec(
    content_type: str | None = None, payload: Any = None, hint: Any = None
) -> Any | None:
    """Returns the codec of a request, as ``find_input_codec`` does for a tensor."""
    if content_type is not None:
        return _requests.get(content_type)
    if hint is not None:
        frame = getattr(hint, "__name__", "") == "DataFrame"
        if frame and str(getattr(hint, "__module__", "")).startswith("pandas"):
            return PandasCodec
        return next((codec for codec in _requests.values() if _same(codec.TypeHint, hint)), None)
    return next((codec for codec in _requests.values() if codec.can_encode(payload)), None)


def content_type_of(thing: Any, metadata: MetadataTensor | None = None) -> str | None:
    """Returns the content type of a tensor, request or answer: its own, else the declared one."""
    for each in (thing, metadata):
        parameters = getattr(each, "parameters", None)
        if parameters is not None and parameters.content_type:
            return str(parameters.content_type)
    return None


def decode_request_input(
    request_input: RequestInput, metadata_inputs: Mapping[str, MetadataTensor] | None = None
) -> Any | None:
    """Returns an input as its content type says, and keeps that; None where nothing says one.

    Raises:
        CodecError: If it cannot be read so.
    """
    declared = (metadata_inputs or {}).get(request_input.name)
    content_type = content_type_of(request_input, declared)
    codec = find_input_codec(content_type) if content_type else None
    if codec is None:
        return None
    value = codec.decode_input(request_input)
    _keep(request_input, value)
    return value


def decode_inference_request(
    inference_request: InferenceRequest,
    model_settings: Any = None,
    metadata_inputs: Mapping[str, MetadataTensor] | None = None,
) -> Any:
    """Returns a request as its content type says; the request itself where nothing says one.

    Its inputs are decoded as well, as far as they have content types.

    Raises:
        CodecError: If something cannot be read so.
    """
    for each in inference_request.inputs:
        decode_request_input(each, metadata_inputs)
    content_type = content_type_of(inference_request) or content_type_of(model_settings)
    codec = find_request_codec(content_type) if content_type else None
    if codec is None:
        return inference_request
    value = codec.decode_request(inference_request)
    _keep(inference_request, value)
    return value


def encode_response_output(
    payload: Any,
    request_output: RequestOutput,
    metadata_outputs: Mapping[str, MetadataTensor] | None = None,
) -> ResponseOutput | None:
    """Returns a value as an output: by the content type asked for, else by what the value is.

    Returns:
        None if nothing fits.
    """
    declared = (metadata_outputs or {}).get(request_output.name)
    content_type = content_type_of(request_output, declared)
    codec = find_input_codec(content_type, payload)
    if codec is None:
        return None
    output: ResponseOutput = codec.encode_output(request_output.name, payload)
    return output


def encode_inference_response(payload: Any, model_settings: Any) -> InferenceResponse | None:
    """Returns a value as an answer, by what the value is; None if nothing fits."""
    codec = find_request_codec(payload=payload)
    if codec is None:
        return None
    version = model_settings.version
    response: InferenceResponse = codec.encode_response(model_settings.name, payload, version)
    return response


def has_decoded(parametrised_obj: Any) -> bool:
    """Whether a tensor or request was decoded already."""
    parameters = parametrised_obj.parameters
    return parameters is not None and DecodedParameterName in parameters.__dict__


def get_decoded(parametrised_obj: Any) -> Any:
    """Returns what it was decoded to, None if it was not."""
    return (
        parametrised_obj.parameters.__dict__[DecodedParameterName]
        if has_decoded(parametrised_obj)
        else None
    )


def get_decoded_or_raw(parametrised_obj: Any) -> Any:
    """Returns what it was decoded to; else a tensor's data, or the request itself."""
    if has_decoded(parametrised_obj):
        return get_decoded(parametrised_obj)
    if isinstance(parametrised_obj, (InferenceRequest, InferenceResponse)):
        return parametrised_obj
    return parametrised_obj.data


def _keep(thing: Any, value: Any) -> None:
    if thing.parameters is None:
        thing.parameters = Parameters()
    thing.parameters.__dict__[DecodedParameterName] = value  # no field: it is in no dump


def _same(known: Any, hint: Any) -> bool:
    if known is type(None):
        return False
    if known == hint or (known is typing.get_origin(hint) and isinstance(known, type)):
        return True
    here, there = typing.get_origin(known), typing.get_origin(hint)
    if here is None or here is not there:
        return False
    kinds = typing.get_args(hint)
    own = typing.get_args(known)
    flat = set(typing.get_args(kinds[0])) or {kinds[0]} if kinds else set()
    return bool(own) and own[0] in flat and flat <= {own[0], str}


def decode_args(predict: Any) -> Any:
    """Lets ``predict`` take the inputs by name, read and written as its type hints say."""
    from marserve.handlers.mlserver.decode_args import decode_args as decorate

    return decorate(predict)


__all__ = [
    "Base64Codec",
    "CodecError",
    "DatetimeCodec",
    "DecodedParameterName",
    "InputCodec",
    "InputCodecLike",
    "NumpyCodec",
    "NumpyRequestCodec",
    "PandasCodec",
    "RequestCodec",
    "RequestCodecLike",
    "StringCodec",
    "StringRequestCodec",
    "decode_args",
    "decode_inference_request",
    "decode_request_input",
    "encode_inference_response",
    "encode_response_output",
    "get_decoded",
    "get_decoded_or_raw",
    "has_decoded",
    "register_input_codec",
    "register_request_codec",
]
