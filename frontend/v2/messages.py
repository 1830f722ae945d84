"""Requests and answers of V2 infer: JSON, with tensors in it or in binary form behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

from marserve.frontend.errors import BadRequest
from marserve.frontend.v2 import numbers, shared_memory
from marserve.frontend.v2.tensors import SIZES, Tensor, from_json, from_raw, pack_bytes, to_json
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.archiver.signature import Signature
    from marserve.frontend.v2.rows import Row
    from marserve.frontend.v2.shared_memory import Regions

Parameters = dict[str, Any]

_PLACES = shared_memory.PARAMETERS | {"binary_data_size"}
"""Parameters that say where a tensor's bytes are, and nothing about it."""


_NULL = msgspec.Raw(b"null")


class Wanted(msgspec.Struct):
    """An output that is asked for."""

    name: str
    parameters: Parameters = {}


class _Input(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: msgspec.Raw = _NULL  # read once it is known what of
    parameters: Parameters = {}


class _Body(msgspec.Struct):
    inputs: list[_Input]
    outputs: list[Wanted] | None = None  # some clients write null for what is absent
    parameters: Parameters | None = None
    id: str | None = None


_decoder = msgspec.json.Decoder(_Body)


@dataclass(slots=True)
class Infer:
    """A request.

    Args:
        inputs: At least one, with different names.
        outputs: Those asked for; empty for all.
        parameters: Of the request.
        id: The client's own, possibly empty.
        rows: What a model that takes one thing a request gets, in the place of the inputs.
    """

    inputs: list[Tensor]
    outputs: list[Wanted]
    parameters: Parameters
    id: str
    rows: list[Row] | None = None

    def binary(self, name: str) -> bool:
        """Tells whether an output is wanted in binary form."""
        if not self.outputs and not self.parameters:
            return False
        default = bool(self.parameters.get("binary_data_output", False))
        named = (each for each in self.outputs if each.name == name)
        return any(bool(each.parameters.get("binary_data", default)) for each in named) or (
            default and not self.outputs
        )


@dataclass(slots=True)
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


def parse(
    body: Buffer,
    header_length: str | None,
    signature: Signature | None = None,
    regions: Regions | None = None,
) -> Infer:
    """Reads a request.

    Args:
        body: The whole of it.
        header_length: The header ``Inference-Header-Content-Length``: bytes of the JSON part; 0
            for a body that is the only input itself.
        signature: Says which one that is.
        regions: Shared memory that inputs may be in.

    Raises:
        BadRequest: If it is none; naming the tensor.
    """
    if header_length == "0":
        return _whole_body(body, signature)
    size = _header_size(header_length, len(body))
    view = memoryview(body)
    try:
        read = _decoder.decode(view[:size])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request is no V2 inference request: {error}") from None
    inputs, at = [], size
    for each in read.inputs:
        length = each.parameters.get("binary_data_size")
        if regions is not None and shared_memory.REGION in each.parameters:
            shared = _shared(each, regions)
            tensor = from_raw(each.name, each.datatype, each.shape, shared)
        elif length is None:
            tensor = _of_json(each)
        else:
            raw = _raw(each, length, view, at)
            tensor = from_raw(each.name, each.datatype, each.shape, raw)
            at += len(raw)
        inputs.append(_with_parameters(tensor, each.parameters))
    if at != len(view):
        raise BadRequest(f"{len(view) - at} bytes at the end of the body belong to no input")
    check_names([each.name for each in inputs])
    return Infer(inputs, read.outputs or [], read.parameters or {}, read.id or "")


def _whole_body(body: Buffer, signature: Signature | None) -> Infer:
    """The body as the only input: in one row, its lone dimension of any size as the body says."""
    if signature is None or len(signature.inputs) != 1:
        raise BadRequest(
            "a body without JSON (Inference-Header-Content-Length: 0) is for models that declare"
            f" one input; this one declares {len(signature.inputs) if signature else 'none'}"
        )
    spec = signature.inputs[0]
    shape = [1, *spec.shape[1:]] if signature.rows_max else list(spec.shape)
    if shape.count(-1) > 1:
        raise BadRequest(
            f"input '{spec.name}': shape {list(spec.shape)} has more than one dimension that a body"
            " without JSON would have to tell"
        )
    if spec.datatype == "BYTES":
        raw: Buffer = pack_bytes([bytes(body)])
        sizes = [1 if size == -1 else size for size in shape]
    else:
        raw, fixed = body, prod(size for size in shape if size != -1) * SIZES[spec.datatype]
        sizes = [len(body) // max(1, fixed) if size == -1 else size for size in shape]
    tensor = from_raw(spec.name, spec.datatype, sizes, raw)
    return Infer([tensor], [], {"binary_data_output": True}, "")


def _of_json(each: _Input) -> Tensor:
    raw = numbers.packed(each.datatype, each.shape, each.data)
    if raw is not None:
        return from_raw(each.name, each.datatype, each.shape, raw)
    try:
        data = msgspec.json.decode(each.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"input '{each.name}': data cannot be read: {error}") from None
    return from_json(each.name, each.datatype, each.shape, data)


def _shared(each: _Input, regions: Regions) -> bytes:
    if each.data != _NULL or "binary_data_size" in each.parameters:
        raise BadRequest(f"input '{each.name}' is in shared memory and in the body, too")
    return regions.read(each.name, each.parameters)


def _raw(each: _Input, length: Any, view: memoryview, at: int) -> memoryview:
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise BadRequest(f"input '{each.name}': binary_data_size is no number of bytes")
    if each.data != _NULL:
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


def render(
    asked: Infer, answer: Answer, regions: Regions | None = None
) -> tuple[bytes, list[Buffer]]:
    """Writes an answer.

    Args:
        asked: Says which outputs are binary, or go to shared memory.
        answer: With its outputs.
        regions: Where to those go.

    Returns:
        Its JSON part, and the binary tensors that follow, if any do.

    Raises:
        BadRequest: If JSON has no form for an output, or it is larger than its shared memory.
    """
    places = _places(asked) if regions is not None else {}
    outputs: list[dict[str, Any]] = []
    raws: list[Buffer] = []
    for tensor in answer.outputs:
        one: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
        }
        parameters: Mapping[str, Any] = tensor.parameters
        if regions is not None and tensor.name in places:
            told = regions.write(tensor.name, tensor.raw, places[tensor.name])
            parameters = {**parameters, **told}
        elif asked.binary(tensor.name):
            parameters = {**parameters, "binary_data_size": len(tensor.raw)}
            raws.append(tensor.raw)
        else:
            listed = numbers.listed(tensor.datatype, tensor.raw)
            one["data"] = to_json(tensor) if listed is None else msgspec.Raw(listed)
        if parameters:
            one["parameters"] = dict(parameters)
        outputs.append(one)
    head = msgspec.json.encode({**described(asked, answer), "outputs": outputs})
    return head, raws


def _places(asked: Infer) -> dict[str, Parameters]:
    """The parameters of the outputs that go to shared memory."""
    key = shared_memory.REGION
    return {each.name: each.parameters for each in asked.outputs if key in each.parameters}
