"""Content types of the Hugging Face runtime: JSON, images, arrays and single values in tensors."""

from __future__ import annotations

import base64
import binascii
import io
import json
from typing import Any, ClassVar

import numpy as np

from marserve.handlers.mlserver.codecs import register_input_codec
from marserve.handlers.mlserver.codecs_base import InputCodec, as_input, elements
from marserve.handlers.mlserver.codecs_numpy import NumpyCodec
from marserve.handlers.mlserver.codecs_text import StringCodec
from marserve.handlers.mlserver.errors import CodecError
from marserve.handlers.mlserver.types import (
    Parameters,
    RequestInput,
    ResponseOutput,
    TensorData,
)


class _Json(InputCodec):
    """A tensor of BYTES, each element of which is JSON."""

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        """Returns what an output stands for."""
        return cls.decode_input(as_input(response_output))

    @classmethod
    def _write(cls, name: str, values: list[Any]) -> ResponseOutput:
        texts = [dumps(value).encode() for value in values]
        return ResponseOutput(
            name=name,
            shape=[len(texts), 1],
            datatype="BYTES",
            parameters=Parameters(content_type=cls.ContentType),
            data=TensorData(texts),
        )


@register_input_codec
class JsonCodec(_Json):
    """One JSON value."""

    ContentType: ClassVar[str] = "hg_json"

    @classmethod
    def encode_output(cls, name: str, payload: Any, **_: Any) -> ResponseOutput:
        """Returns a value as an output of one element."""
        return cls._write(name, [payload])

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns the one value of an input."""
        values = JsonListCodec.decode_input(request_input)
        return values[0] if len(values) == 1 else values


@register_input_codec
class JsonListCodec(_Json):
    """A list of JSON values."""

    ContentType: ClassVar[str] = "hg_jsonlist"

    @classmethod
    def encode_output(cls, name: str, payload: Any, **_: Any) -> ResponseOutput:
        """Returns a list as an output, an element a value."""
        return cls._write(name, list(payload))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns the list of an input's values."""
        try:
            return [json.loads(each) for each in elements(request_input.data)]
        except (TypeError, ValueError) as error:
            raise CodecError(f"input '{request_input.name}' is no JSON: {error}") from error


@register_input_codec
class RawCodec(InputCodec):
    """One plain value: a number, a truth or a text."""

    ContentType: ClassVar[str] = "raw"

    @classmethod
    def encode_output(cls, name: str, payload: Any, **_: Any) -> ResponseOutput:
        """Returns a value as an output of one element."""
        if isinstance(payload, str):
            return StringCodec.encode_output(name, [payload])
        return NumpyCodec.encode_output(name, np.asarray([payload]))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns the first element of an input."""
        values = elements(request_input.data)
        while isinstance(values, list) and len(values) == 1 and isinstance(values[0], list):
            values = values[0]
        if not values:
            raise CodecError(f"input '{request_input.name}' as 'raw': it has no element")
        return values[0].decode() if isinstance(values[0], bytes) else values[0]


@register_input_codec
class ArrayListCodec(InputCodec):
    """A list of arrays, one for each row of a tensor."""

    ContentType: ClassVar[str] = "nplist"

    @classmethod
    def encode_output(cls, name: str, payload: Any, **_: Any) -> ResponseOutput:
        """Returns arrays of one shape as an output."""
        return NumpyCodec.encode_output(name, np.stack(payload))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns the rows of an input."""
        return list(NumpyCodec.decode_input(request_input))


@register_input_codec
class ImageCodec(InputCodec):
    """A list of images, each a file's bytes or their base64."""

    ContentType: ClassVar[str] = "pillow_image"

    @classmethod
    def encode_output(cls, name: str, payload: Any, **_: Any) -> ResponseOutput:
        """Returns images as an output, PNG files in base64."""
        texts: list[Any] = [picture_text(each).encode() for each in payload]
        return ResponseOutput(
            name=name,
            shape=[len(texts), 1],
            datatype="BYTES",
            parameters=Parameters(content_type=cls.ContentType),
            data=TensorData(texts),
        )

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns the images of an input."""
        return [picture(each, request_input.name) for each in elements(request_input.data)]


def picture(value: Any, name: str = "images") -> Any:
    """Returns an image as transformers takes it.

    Args:
        value: The bytes of a file, or their base64, also as a ``data:`` URL. Addresses and paths
            are refused: a request must not choose what the server reads.
        name: Of the input.

    Raises:
        CodecError: If it is none.
    """
    from PIL import Image

    data = file_bytes(value, name)
    try:
        return Image.open(io.BytesIO(data)).convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise CodecError(f"input '{name}': an element is no image: {error!s:.100}") from error


def file_bytes(value: Any, name: str) -> bytes:
    """Returns the bytes of a file that came as they are, or as base64.

    Raises:
        CodecError: If it is a text that is no base64.
    """
    if isinstance(value, (bytes, bytearray)):
        return _unwrapped(bytes(value)) or bytes(value)
    text = str(value)
    data = _unwrapped(text.encode())
    if data is None:
        raise CodecError(
            f"input '{name}': expected a file's bytes or their base64; neither addresses nor paths"
            " are read"
        )
    return data


def _unwrapped(text: bytes) -> bytes | None:
    body = text.partition(b",")[2] if text.startswith(b"data:") else text
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None


def picture_text(value: Any) -> str:
    """Returns an image as the base64 of a PNG file."""
    stream = io.BytesIO()
    value.save(stream, format="PNG")
    return base64.b64encode(stream.getvalue()).decode()


def dumps(value: Any) -> str:
    """Returns what a pipeline answered as JSON."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if hasattr(value, "save") and hasattr(value, "mode"):
        return picture_text(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    if hasattr(value, "model_dump"):
        return value.model_dump()
    return list(value) if hasattr(value, "__iter__") else str(value)
