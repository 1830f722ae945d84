"""Content types ``str``, ``base64`` and ``datetime``: tensors of BYTES as lists of values."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any, ClassVar

from marserve.handlers.mlserver.codecs_base import (
    InputCodec,
    SingleInputRequestCodec,
    as_input,
    decoded,
    elements,
)
from marserve.handlers.mlserver.errors import CodecError
from marserve.handlers.mlserver.types import (
    Parameters,
    RequestInput,
    ResponseOutput,
    TensorData,
)


class _Texts(InputCodec):
    """Lists of values, each of which has a text form."""

    kinds: ClassVar[tuple[type, ...]] = ()

    @classmethod
    def write(cls, value: Any) -> bytes:
        """Returns the text form of a value."""
        raise NotImplementedError(cls.__name__)

    @classmethod
    def read(cls, value: Any) -> Any:
        """Returns the value of a text form."""
        raise NotImplementedError(cls.__name__)

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Whether it is a list of such values."""
        return isinstance(payload, list) and all(isinstance(each, cls.kinds) for each in payload)

    @classmethod
    def encode_output(
        cls, name: str, payload: Any, use_bytes: bool = True, **_: Any
    ) -> ResponseOutput:
        """Returns a list as an output, a column of texts."""
        texts: list[Any] = [cls.write(each) for each in payload]
        if not use_bytes:
            texts = [text.decode() for text in texts]
        return ResponseOutput(
            name=name,
            datatype="BYTES",
            shape=[len(texts), 1],
            data=TensorData(texts),
            parameters=Parameters(content_type=cls.ContentType),
        )

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        """Returns an output as a list."""
        return cls.decode_input(as_input(response_output))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns an input as a list."""
        try:
            return decoded(elements(request_input.data), cls.read)
        except (TypeError, ValueError) as error:
            name, kind = request_input.name, cls.ContentType
            raise CodecError(f"input '{name}' as '{kind}': {error}") from error


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else ""


class StringCodec(_Texts):
    """Lists of texts."""

    ContentType: ClassVar[str] = "str"
    TypeHint: ClassVar[Any] = list[str]
    kinds: ClassVar[tuple[type, ...]] = (str,)

    @classmethod
    def write(cls, value: Any) -> bytes:
        """Returns a text in UTF-8."""
        return value if isinstance(value, bytes) else str(value).encode()

    @classmethod
    def read(cls, value: Any) -> Any:
        """Returns the text of an element; of what is no text, nothing."""
        return _text(value)


class Base64Codec(_Texts):
    """Lists of bytes, which travel as base64."""

    ContentType: ClassVar[str] = "base64"
    TypeHint: ClassVar[Any] = list[bytes]
    kinds: ClassVar[tuple[type, ...]] = (bytes,)

    @classmethod
    def write(cls, value: Any) -> bytes:
        """Returns base64."""
        return base64.b64encode(value.encode() if isinstance(value, str) else value)

    @classmethod
    def read(cls, value: Any) -> Any:
        """Returns the bytes of an element; what is no base64 is taken to be the bytes."""
        data = value.encode() if isinstance(value, str) else bytes(value)
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error:
            return data


class DatetimeCodec(_Texts):
    """Lists of points in time, which travel as ISO 8601."""

    ContentType: ClassVar[str] = "datetime"
    TypeHint: ClassVar[Any] = list[datetime]
    kinds: ClassVar[tuple[type, ...]] = (datetime,)

    @classmethod
    def write(cls, value: Any) -> bytes:
        """Returns ISO 8601."""
        return (value.isoformat() if isinstance(value, datetime) else str(value)).encode()

    @classmethod
    def read(cls, value: Any) -> Any:
        """Returns the point in time of an element."""
        return datetime.fromisoformat(_text(value))


class StringRequestCodec(SingleInputRequestCodec):
    """Requests of one list of texts."""

    ContentType: ClassVar[str] = "str"
    InputCodec: ClassVar[type[InputCodec]] = StringCodec
