"""From the rows of the worker to Triton's requests, and from its responses to results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from marserve.archiver.tensor_marks import ID, PARAMETERS, WANTED
from marserve.handlers.errors import RequestError
from marserve.handlers.tensors import TensorAnswer
from marserve.handlers.triton.errors import TritonError, as_request_error
from marserve.handlers.triton.messages import (
    SEQUENCE_END,
    SEQUENCE_START,
    InferenceRequest,
    InferenceResponse,
)
from marserve.handlers.triton.shapes import Shapes
from marserve.handlers.triton.tensors import Tensor

_OWN = frozenset(
    {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output"}
)
"""Parameters that the protocol gives a meaning, and that are no business of the model."""


def request_of(
    row: Mapping[str, Any], headers: Mapping[str, str], shapes: Shapes, **of_model: Any
) -> InferenceRequest:
    """Returns one request.

    Args:
        row: Arrays by name.
        headers: Those that the server adds.
        shapes: Of the model.
        of_model: ``model_name`` and ``model_version``.

    Raises:
        RequestError: If the row has no tensors: the client asked in another way.
    """
    if any(not hasattr(value, "dtype") for value in row.values()):
        raise RequestError("this model takes tensors: ask it by the Open Inference Protocol (V2)")
    parameters = json.loads(headers.get(PARAMETERS) or "{}")
    flags = SEQUENCE_START * bool(parameters.get("sequence_start"))
    flags |= SEQUENCE_END * bool(parameters.get("sequence_end"))
    return InferenceRequest(
        request_id=headers.get(ID, ""),
        correlation_id=parameters.get("sequence_id", 0),
        inputs=[Tensor(name, shapes.inwards(name, value)) for name, value in row.items()],
        requested_output_names=json.loads(headers.get(WANTED) or "[]"),
        flags=flags,
        timeout=int(parameters.get("timeout", 0)),
        parameters={name: value for name, value in parameters.items() if name not in _OWN},
        **of_model,
    )


def result_of(response: Any, shapes: Shapes) -> TensorAnswer | RequestError:
    """Returns what the worker sends for a response."""
    if not isinstance(response, InferenceResponse):
        kind = type(response).__name__
        return RequestError(f"the model returned {kind} in the place of an InferenceResponse", 500)
    error = response.error()
    if error is not None:
        known = error if isinstance(error, TritonError) else TritonError(str(error))
        return as_request_error(known)
    outputs = {
        each.name(): shapes.outwards(each.name(), each.as_numpy())
        for each in response.output_tensors()
    }
    return TensorAnswer(outputs, json.loads(response.parameters()))
