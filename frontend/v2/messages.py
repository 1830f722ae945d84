"""Requests and answers of V2 infer: JSON, with tensors in it or in binary form behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from marserve.frontend.errors import BadRequest
from marserve.frontend.v2.tensors import Tensor, from_json, from_raw, to_json
from marserve.worker.wire import Buffer

Parameters = dict[str, Any]

_PLACES = frozenset({"binary_data_size"})
"""Parameters that say where a tensor's bytes are, and nothing about it."""


class Wanted(msgspec.Struct):
    """An output that is asked for."""

    name: str
    parameters: Parameters = {}


class _Input(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: Any = None
    parameters: Parameters = {}


class _Body(msgspec.Struct):
    inputs: list[_Input]
    outputs: list[Wanted] = []
    parameters: Parameters = {}
    id: str = ""


_decoder = msgspec.json.Decoder(_Body)


@dataclass(slots=True, frozen=True)
class Infer:
    """A request.

    Args:
        inputs: At least one, with different names.
        outputs: Those asked for; empty for all.
        parameters: Of the request.
        id: The client's own, possibly empty.
    """

    inputs: list[Tensor]
    outputs: list[Wanted]
    parameters: Parameters
    id: str

    def binary(self, name: str) -> bool:
        """Tells whether an output is wanted in binary form."""
        default = bool(self.parameters.get("binary_data_output", False))
        named = (each for each in self.outputs if each.name == name)
        return any(bool(each.parameters.get("binary_data", default)) for each in named) or (
            default and not self.outputs
        )


@dataclass(slots=True, frozen=True)
class Answer:
    """What a model gave, or a piece of it.

    Args:
        model: Name.
        version: Which answered.
        outputs: Those asked for, in that order.
        parameters: Of the answer.
        headers: Those that the model set for HTTP.
        status: As over HTTP; below 300.
        last: Whether nothing more comes.
        empty: Whether it only says that nothing more comes.
    """

    model: str
    version: str
    outputs: list[Tensor]
    parameters: Parameters
    headers: dict[str, str]
    status: int = 200
    last: bool = True
    empty: bool = False


def parse(body: Buffer, header_length: str | None) -> Infer:
    """Reads a request.

    Args:
        body: The whole of it.
        header_length: The header ``Inference-Header-Content-Length``: bytes of the JSON part.

    Raises:
        BadRequest: If it is none; naming the tensor.
    """
    size = _header_size(header_length, len(body))
    view = memoryview(body)
    try:
        read = _decoder.decode(view[:size])
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the request is no V2 inference request: {error}") from None
    inputs, at = [], size
    for each in read.inputs:
        length = each.parameters.get("binary_data_size")
        if length is None:
            tensor = from_json(each.name, each.datatype, each.shape, each.data)
        else:
            raw = _raw(each, length, view, at)
            tensor = from_raw(each.name, each.datatype, each.shape, raw)
            at += len(raw)
        inputs.append(_with_parameters(tensor, each.parameters))
    if at != len(view):
        raise BadRequest(f"{len(view) - at} bytes at the end of the body belong to no input")
    check_names([each.name for each in inputs])
    return Infer(inputs, read.outputs, read.parameters, read.id)


def _raw(each: _Input, length: Any, view: memoryview, at: int) -> memoryview:
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise BadRequest(f"input '{each.name}': binary_data_size is no number of bytes")
    if each.data is not None:
        raise BadRequest(f"input '{each.name}' has both data and binary_data_size")
    if at + length > len(view):
        raise BadRequest(
            f"input '{each.name}': binary_data_size is {length}, but {len(view) - at} bytes"
            " are left of the body (Inference-Header-Content-Length says where they begin)"
        )
    return view[at : at + length]


def _with_parameters(tensor: Tensor, parameters: Parameters) -> Tensor:
    own = {name: value for name, value in parameters.items() if name not in _PLACES}
    return replace(tensor, parameters=own) if own else tensor


def _header_size(header_length: str | None, total: int) -> int:
    if header_length is None:
        return total
    size = int(header_length) if header_length.isascii() and header_length.isdecimal() else -1
    if not 0 < size <= total:
        raise BadRequest(
            f"Inference-Header-Content-Length is {header_length:.40}; expected the length of the"
            f" JSON part of a body of {total} bytes"
        )
    return size


def check_names(names: list[str]) -> None:
    """Refuses a request without inputs, or with two of one name.

    Raises:
        BadRequest: Naming the input.
    """
    if not names:
        raise BadRequest('"inputs" is empty; expected at least one tensor')
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BadRequest(f"input '{min(twice)}' is there more than once")


def described(asked: Infer, answer: Answer) -> dict[str, Any]:
    """Returns an answer as JSON has it, without its tensors."""
    head: dict[str, Any] = {"model_name": answer.model, "model_version": answer.version}
    if asked.id:
        head["id"] = asked.id
    if answer.parameters:
        head["parameters"] = answer.parameters
    return head


def render(asked: Infer, answer: Answer) -> tuple[bytes, int | None]:
    """Writes an answer.

    Returns:
        The body, and the length of its JSON part if binary tensors follow.

    Raises:
        BadRequest: If JSON has no form for an output.
    """
    outputs: list[dict[str, Any]] = []
    raws: list[Buffer] = []
    for tensor in answer.outputs:
        one: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
        }
        parameters: Mapping[str, Any] = tensor.parameters
        if asked.binary(tensor.name):
            parameters = {**parameters, "binary_data_size": len(tensor.raw)}
            raws.append(tensor.raw)
        else:
            one["data"] = to_json(tensor)
        if parameters:
            one["parameters"] = dict(parameters)
        outputs.append(one)
    head = msgspec.json.encode({**described(asked, answer), "outputs": outputs})
    return (b"".join([head, *raws]), len(head)) if raws else (head, None)
