"""Content type ``np``: tensors as numpy arrays."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from marserve.handlers.mlserver.codecs_base import (
    InputCodec,
    SingleInputRequestCodec,
    as_input,
    column_shape,
)
from marserve.handlers.mlserver.errors import CodecError
from marserve.handlers.mlserver.types import (
    Parameters,
    RequestInput,
    ResponseOutput,
    TensorData,
)

DTYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
WORDS = {dtype: word for word, dtype in DTYPES.items()}


class NumpyCodec(InputCodec):
    """Tensors as arrays; a vector becomes a column."""

    ContentType: ClassVar[str] = "np"
    TypeHint: ClassVar[Any] = np.ndarray

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Whether it is an array."""
        return isinstance(payload, np.ndarray)

    @classmethod
    def encode_output(cls, name: str, payload: Any, **_: Any) -> ResponseOutput:
        """Returns an array as an output."""
        array = np.asarray(payload)
        word = datatype_of(array)
        return ResponseOutput(
            name=name,
            datatype=word,
            shape=column_shape(array.shape),
            data=TensorData(_texts(array) if word == "BYTES" else array),
            parameters=Parameters(content_type=cls.ContentType),
        )

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        """Returns an output as an array."""
        return cls.decode_input(as_input(response_output))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        """Returns an input as an array; null is NaN in tensors of floats."""
        data, word = request_input.data, str(request_input.datatype)
        try:
            if word == "BYTES":
                return np.array(data.root).reshape(request_input.shape)
            dtype = DTYPES[word]
            if data.array is not None:
                return np.asarray(data.array, dtype).reshape(request_input.shape)
            return np.array(data.root, dtype).reshape(request_input.shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise CodecError(f"input '{request_input.name}' as an array: {error}") from error


class NumpyRequestCodec(SingleInputRequestCodec):
    """Requests of one array."""

    ContentType: ClassVar[str] = "np"
    InputCodec: ClassVar[type[InputCodec]] = NumpyCodec


def datatype_of(array: Any) -> str:
    """Returns the word for the elements of an array.

    Raises:
        CodecError: If there is none.
    """
    word = WORDS.get(array.dtype.name)
    if word is not None:
        return word
    if array.dtype.kind in "OSUT":
        return "BYTES"
    raise CodecError(f"arrays of {array.dtype} are no datatype of the protocol")


def _texts(array: Any) -> list[Any]:
    return [each.encode() if isinstance(each, str) else each for each in array.ravel().tolist()]
