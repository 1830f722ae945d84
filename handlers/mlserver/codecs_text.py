"""Content types ``str``, ``base64`` and ``datetime``: tensors of BYTES as lists of values."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
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
    write: ClassVar[Callable[[Any], bytes]]
    read: ClassVar[Callable[[Any], Any]]

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


def _from_base64(value: Any) -> bytes:
    """What is no base64 is taken to be the bytes themselves."""
    data = value.encode() if isinstance(value, str) else bytes(value)
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        return data


def _to_base64(value: Any) -> bytes:
    return base64.b64encode(value.encode() if isinstance(value, str) else value)


def _to_iso(value: Any) -> bytes:
    return (value.isoformat() if isinstance(value, datetime) else str(value)).encode()


class StringCodec(_Texts):
    """Lists of texts."""

    ContentType: ClassVar[str] = "str"
    TypeHint: ClassVar[Any] = list[str]
    kinds: ClassVar[tuple[type, ...]] = (str,)
    write = staticmethod(lambda value: value if isinstance(value, bytes) else value.encode())
    read = staticmethod(_text)


class Base64Codec(_Texts):
    """Lists of bytes, which travel as base64."""

    ContentType: ClassVar[str] = "base64"
    TypeHint: ClassVar[Any] = list[bytes]
    kinds: ClassVar[tuple[type, ...]] = (bytes,)
    write = staticmethod(_to_base64)
    read = staticmethod(_from_base64)


class DatetimeCodec(_Texts):
    """Lists of points in time, which travel as ISO 8601."""

    ContentType: ClassVar[str] = "datetime"
    TypeHint: ClassVar[Any] = list[datetime]
    kinds: ClassVar[tuple[type, ...]] = (datetime,)
    write = staticmethod(_to_iso)
    read = staticmethod(lambda value: datetime.fromisoformat(_text(value)))


class StringRequestCodec(SingleInputRequestCodec):
    """Requests of one list of texts."""

    ContentType: ClassVar[str] = "str"
    InputCodec: ClassVar[type[InputCodec]] = StringCodec
