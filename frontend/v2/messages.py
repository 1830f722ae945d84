"""Requests and answers of V2 infer: JSON, with tensors in it or in binary form behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from marserve.frontend.errors import BadRequest
from marserve.frontend.v2.tensors import Tensor, from_json, from_raw, to_json
from marserve.worker.wire import Buffer

Parameters = dict[str, str | bool | int | float]


class _Input(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: Any = None
    parameters: Parameters = {}


class _Output(msgspec.Struct):
    name: str
    parameters: Parameters = {}


class _Body(msgspec.Struct):
    inputs: list[_Input]
    outputs: list[_Output] = []
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
    outputs: list[_Output]
    parameters: Parameters
    id: str

    def binary(self, name: str) -> bool:
        """Tells whether an output is wanted in binary form."""
        default = bool(self.parameters.get("binary_data_output", False))
        named = (each for each in self.outputs if each.name == name)
        return any(bool(each.parameters.get("binary_data", default)) for each in named) or (
            default and not self.outputs
        )


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
            inputs.append(from_json(each.name, each.datatype, each.shape, each.data))
            continue
        if isinstance(length, bool) or not isinstance(length, int) or length < 0:
            raise BadRequest(f"input '{each.name}': binary_data_size is no number of bytes")
        if each.data is not None:
            raise BadRequest(f"input '{each.name}' has both data and binary_data_size")
        if at + length > len(view):
            raise BadRequest(
                f"input '{each.name}': binary_data_size is {length}, but {len(view) - at} bytes"
                " are left of the body (Inference-Header-Content-Length says where they begin)"
            )
        inputs.append(from_raw(each.name, each.datatype, each.shape, view[at : at + length]))
        at += length
    if at != len(view):
        raise BadRequest(f"{len(view) - at} bytes at the end of the body belong to no input")
    _check_names([each.name for each in inputs])
    return Infer(inputs, read.outputs, read.parameters, read.id)


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


def _check_names(names: list[str]) -> None:
    if not names:
        raise BadRequest('"inputs" is empty; expected at least one tensor')
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BadRequest(f"input '{min(twice)}' is there more than once")


def render(
    request: Infer, model: str, version: str, outputs: list[Tensor]
) -> tuple[bytes, int | None]:
    """Writes an answer.

    Args:
        request: What was asked.
        model: Its name.
        version: Which answered.
        outputs: All that the model gave.

    Returns:
        The body, and the length of its JSON part if binary tensors follow.

    Raises:
        BadRequest: If an output was asked for that there is not, or that JSON has no form for.
    """
    answer: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id:
        answer["id"] = request.id
    described, raws = [], []
    for tensor in _wanted(request, outputs):
        one: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
        }
        if request.binary(tensor.name):
            one["parameters"] = {"binary_data_size": len(tensor.raw)}
            raws.append(tensor.raw)
        else:
            one["data"] = to_json(tensor)
        described.append(one)
    answer["outputs"] = described
    head = msgspec.json.encode(answer)
    return (b"".join([head, *raws]), len(head)) if raws else (head, None)


def _wanted(request: Infer, outputs: list[Tensor]) -> list[Tensor]:
    if not request.outputs:
        return outputs
    known = {tensor.name: tensor for tensor in outputs}
    for each in request.outputs:
        if each.name not in known:
            names = ", ".join(known) or "none"
            raise BadRequest(f"output '{each.name:.100}' is unknown; the model gave: {names}")
    return [known[each.name] for each in request.outputs]
