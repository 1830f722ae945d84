"""From what a request carries to an ``InferenceRequest``, and from an answer to tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from marserve.archiver.tensor_marks import (
    ID,
    OF_INPUTS,
    OF_OUTPUTS,
    PARAMETERS,
    REQUEST_HEADERS,
    WANTED,
)
from marserve.handlers.errors import RequestError
from marserve.handlers.mlserver.codecs_numpy import DTYPES, WORDS
from marserve.handlers.mlserver.records import ValidationError
from marserve.handlers.mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
    TensorData,
)

_OURS = (*REQUEST_HEADERS, "explain")


def holds_tensors(row: Mapping[str, Any]) -> bool:
    """Whether a row is a request of tensors, rather than a body."""
    return bool(row) and all(isinstance(value, np.ndarray) for value in row.values())


def from_tensors(row: Mapping[str, Any], headers: Mapping[str, str]) -> InferenceRequest:
    """Returns a request of tensors.

    Args:
        row: Arrays by name; BYTES are arrays of ``bytes`` objects.
        headers: Of the request; some of them say what else the request has.
    """
    of_inputs, of_outputs = _object(headers, OF_INPUTS), _object(headers, OF_OUTPUTS)
    wanted = json.loads(headers[WANTED]) if WANTED in headers else None
    own = {name.lower(): value for name, value in headers.items() if name not in _OURS}
    return InferenceRequest(
        id=headers.get(ID),
        parameters=Parameters(**{**_object(headers, PARAMETERS), "headers": own}),
        inputs=[_input(name, array, of_inputs.get(name)) for name, array in row.items()],
        outputs=None
        if wanted is None
        else [RequestOutput(name=name, parameters=_given(of_outputs.get(name))) for name in wanted],
    )


def from_json(value: Mapping[str, Any], headers: Mapping[str, str]) -> InferenceRequest:
    """Returns a request that came as JSON.

    Raises:
        RequestError: If it is none; naming the field.
    """
    try:
        request = InferenceRequest(**{str(key): each for key, each in value.items()})
    except (ValidationError, TypeError) as error:
        raise RequestError(f"the request is no V2 inference request: {error}") from None
    given = request.parameters.model_dump() if request.parameters is not None else {}
    own = {name.lower(): each for name, each in headers.items() if name not in _OURS}
    request.parameters = Parameters(**{**given, "headers": own})
    return request


def arrays(response: InferenceResponse) -> dict[str, Any]:
    """Returns the outputs as arrays of their shapes, BYTES as arrays of objects.

    Raises:
        RequestError: If data are not what datatype and shape say; naming the output.
    """
    return {each.name: _array(each) for each in response.outputs}


def parameters_of(response: InferenceResponse) -> dict[str, dict[str, Any]]:
    """Returns the parameters of each output that has some."""
    found = {each.name: plain(each.parameters) for each in response.outputs}
    return {name: given for name, given in found.items() if given}


def plain(parameters: Parameters | None) -> dict[str, Any]:
    """Returns parameters as plain values, without those that are not set."""
    return {} if parameters is None else parameters.model_dump(mode="json", exclude_none=True)


def as_json(request: InferenceRequest, response: InferenceResponse) -> dict[str, Any]:
    """Returns an answer as V2 writes it in JSON."""
    answer = response.model_dump(mode="json", exclude_none=True)
    if request.id is not None:
        answer.setdefault("id", request.id)
    return answer


def _object(headers: Mapping[str, str], name: str) -> dict[str, Any]:
    return json.loads(headers[name]) if name in headers else {}


def _given(parameters: Mapping[str, Any] | None) -> Parameters | None:
    return Parameters(**parameters) if parameters else None


def _input(name: str, array: Any, parameters: Mapping[str, Any] | None) -> RequestInput:
    word = WORDS.get(array.dtype.name, "BYTES")
    data = array if word != "BYTES" else [_text(each) for each in array.ravel().tolist()]
    return RequestInput(
        name=name,
        shape=list(array.shape),
        datatype=word,
        parameters=_given(parameters),
        data=TensorData(data),
    )


def _text(value: Any) -> Any:
    """In MLServer, texts of JSON are texts; what is no UTF-8 can only have come in binary form."""
    try:
        return value.decode()
    except (UnicodeDecodeError, AttributeError):
        return value


def _array(output: ResponseOutput) -> Any:
    word, shape = str(output.datatype), output.shape
    try:
        if word != "BYTES":
            known = output.data.array
            values = output.data.root if known is None else known
            found = np.asarray(values, DTYPES[word]).reshape(shape)
        else:
            values = [_bytes(each) for each in _flat(output.data.root)]
            found = np.empty(len(values), object)
            found[:] = values
            found = found.reshape(shape)
    except (TypeError, ValueError, OverflowError) as error:
        text = f"output '{output.name}': data are not {word} of shape {shape}: {error}"
        raise RequestError(text, 500) from error
    if found.size != prod(shape):
        raise RequestError(f"output '{output.name}': shape {shape} has another size", 500)
    return found


def _flat(values: Any) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        return [values]
    return [item for each in values for item in (_flat(each) if isinstance(each, list) else [each])]


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode()
