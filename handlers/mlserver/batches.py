"""Requests joined by rows, and their answers cut apart again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from marserve.handlers.mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    ResponseOutput,
    TensorData,
)
from marserve.handlers.mlserver.uris import generate_uuid

_OF_THE_CALLER = {"headers", "binary_data_output", "binary_data", "priority", "timeout"}


def rows_of(request: InferenceRequest) -> int | None:
    """Returns how many rows a request has; None if its inputs do not agree, or have none."""
    sizes = {each.shape[0] if each.shape else None for each in request.inputs}
    return sizes.pop() if len(sizes) == 1 else None


def groups(requests: Sequence[InferenceRequest], most_rows: int) -> list[list[int]]:
    """Returns which requests go together, by position, in the order of arrival.

    Those go together that have the same inputs, datatypes, further dimensions, parameters and
    wanted outputs, as long as their rows are not more than wanted.

    Args:
        requests: A batch.
        most_rows: Of those that go together.
    """
    found: list[list[int]] = []
    open_groups: dict[str, tuple[list[int], int]] = {}
    for at, request in enumerate(requests):
        rows = rows_of(request)
        if rows is None:
            found.append([at])
            continue
        key = _key(request)
        group, filled = open_groups.get(key, ([], most_rows))
        if filled + rows > most_rows or not group:
            group, filled = [], 0
            found.append(group)
        group.append(at)
        open_groups[key] = (group, filled + rows)
    return found


def joined(requests: Sequence[InferenceRequest]) -> InferenceRequest:
    """Returns one request with the rows of all; they are alike, as those of a group are."""
    first = requests[0]
    if len(requests) == 1:
        return first
    inputs = []
    for each in first.inputs:
        same = [_named(request.inputs, each.name) for request in requests]
        inputs.append(
            RequestInput(
                name=each.name,
                shape=[sum(one.shape[0] for one in same), *each.shape[1:]],
                datatype=each.datatype,
                parameters=each.parameters,
                data=_end_to_end([one.data for one in same]),
            )
        )
    return InferenceRequest(
        id=generate_uuid(), parameters=first.parameters, inputs=inputs, outputs=first.outputs
    )


def cut(
    response: InferenceResponse, requests: Sequence[InferenceRequest]
) -> list[InferenceResponse] | None:
    """Returns the answers to the requests that were joined; None if it has not their rows."""
    if len(requests) == 1:
        return [response]
    counts = [rows_of(request) or 0 for request in requests]
    total = sum(counts)
    if any(not each.shape or each.shape[0] != total for each in response.outputs):
        return None
    pieces = [_pieces(each, counts) for each in response.outputs]
    return [
        InferenceResponse(
            model_name=response.model_name,
            model_version=response.model_version,
            id=request.id,
            parameters=_own(response.parameters),
            outputs=[outputs[at] for outputs in pieces],
        )
        for at, request in enumerate(requests)
    ]


def _key(request: InferenceRequest) -> str:
    inputs = sorted(
        (each.name, str(each.datatype), each.shape[1:], _shown(each.parameters))
        for each in request.inputs
    )
    wanted = [(each.name, _shown(each.parameters)) for each in request.outputs or ()]
    return json.dumps([inputs, wanted, _shown(request.parameters)], default=str)


def _shown(parameters: Parameters | None) -> dict[str, Any]:
    """Some are of the caller and not of the question."""
    if parameters is None:
        return {}
    return parameters.model_dump(exclude=_OF_THE_CALLER, exclude_none=True)


def _named(inputs: Sequence[RequestInput], name: str) -> RequestInput:
    return next(each for each in inputs if each.name == name)


def _end_to_end(data: Sequence[TensorData]) -> TensorData:
    if all(each.array is not None for each in data):
        return TensorData(np.concatenate([each.array for each in data]))
    return TensorData([value for each in data for value in each.root])


def _pieces(output: ResponseOutput, counts: Sequence[int]) -> list[ResponseOutput]:
    array = output.data.array
    values: Any = output.data.root if array is None else array.reshape(output.shape)
    nested = array is not None or len(values) == output.shape[0]
    width = 1 if nested else len(values) // max(1, output.shape[0])
    found, at = [], 0
    for count in counts:
        found.append(
            ResponseOutput(
                name=output.name,
                shape=[count, *output.shape[1:]],
                datatype=output.datatype,
                parameters=output.parameters,
                data=TensorData(values[at : at + count * width]),
            )
        )
        at += count * width
    return found


def _own(parameters: Parameters | None) -> Parameters | None:
    return None if parameters is None else parameters.model_copy()
