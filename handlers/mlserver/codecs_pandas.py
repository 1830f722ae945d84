"""Content type ``pd``: whole requests and answers as data frames, a tensor a column."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from marserve.handlers.mlserver.codecs_base import RequestCodec, column_shape
from marserve.handlers.mlserver.codecs_numpy import WORDS
from marserve.handlers.mlserver.codecs_text import StringCodec
from marserve.handlers.mlserver.errors import CodecError
from marserve.handlers.mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    ResponseOutput,
    TensorData,
)


class PandasCodec(RequestCodec):
    """Data frames; needs pandas, which is imported on use."""

    ContentType: ClassVar[str] = "pd"
    JsonContentType: ClassVar[str] = "pd_json"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        """Whether it is a data frame."""
        return type(payload).__name__ == "DataFrame" and hasattr(payload, "iloc")

    @classmethod
    def encode_outputs(cls, payload: Any, use_bytes: bool = True) -> list[ResponseOutput]:
        """Returns the columns of a data frame as outputs."""
        return [_output(str(name), payload[name], use_bytes) for name in payload.columns]

    @classmethod
    def encode_response(
        cls,
        model_name: str,
        payload: Any,
        model_version: str | None = None,
        use_bytes: bool = True,
        **_: Any,
    ) -> InferenceResponse:
        """Returns a data frame as an answer."""
        return InferenceResponse(
            model_name=model_name,
            model_version=model_version,
            parameters=Parameters(content_type=cls.ContentType),
            outputs=cls.encode_outputs(payload, use_bytes),
        )

    @classmethod
    def encode_request(cls, payload: Any, use_bytes: bool = True, **_: Any) -> InferenceRequest:
        """Returns a data frame as a request."""
        return InferenceRequest(
            parameters=Parameters(content_type=cls.ContentType),
            inputs=[
                RequestInput(
                    name=each.name,
                    shape=each.shape,
                    datatype=each.datatype,
                    parameters=each.parameters,
                    data=each.data,
                )
                for each in cls.encode_outputs(payload, use_bytes)
            ],
        )

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        """Returns a request as a data frame."""
        return _frame(request.inputs)

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        """Returns an answer as a data frame."""
        return _frame(response.outputs)


def _output(name: str, series: Any, use_bytes: bool) -> ResponseOutput:
    array = series.to_numpy()
    word = WORDS.get(array.dtype.name)
    if word is not None:
        shape, data, kind = column_shape(array.shape), TensorData(array), None
    else:
        values = [None if each is None else _written(each) for each in array.tolist()]
        texts = [v.encode() if use_bytes and isinstance(v, str) else v for v in values]
        word, shape, data = "BYTES", [len(texts), 1], TensorData(texts)
        kind = Parameters(content_type=StringCodec.ContentType)
    return ResponseOutput(name=name, shape=shape, datatype=word, parameters=kind, data=data)


def _written(value: Any) -> Any:
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, float) and value != value:  # how pandas writes that nothing is there
        return None
    moment = getattr(value, "isoformat", None)
    return str(value) if moment is None else moment()


def _frame(tensors: list[Any]) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise CodecError("content type 'pd' needs pandas, which is not installed here") from error
    columns = {each.name: pandas.Series(_column(each), name=each.name) for each in tensors}
    return pandas.DataFrame(columns)


def _column(tensor: Any) -> Any:
    from marserve.handlers.mlserver.codecs import get_decoded_or_raw, has_decoded

    value = get_decoded_or_raw(tensor) if has_decoded(tensor) else None
    if value is None:
        from marserve.handlers.mlserver.codecs_numpy import NumpyCodec

        texts = str(tensor.datatype) == "BYTES"
        value = (StringCodec if texts else NumpyCodec).decode_input(tensor)
    if isinstance(value, np.ndarray) and value.ndim > 1:
        return value.ravel() if value.shape[1:] == (1,) * (value.ndim - 1) else list(value)
    return value
