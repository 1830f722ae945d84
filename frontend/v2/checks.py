"""Requests compared with the tensors that a model declares; each error names the tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marserve.frontend.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from marserve.archiver.signature import Signature, TensorSpec
    from marserve.frontend.v2.messages import Infer
    from marserve.frontend.v2.tensors import Tensor


def check_request(signature: Signature, asked: Infer) -> None:
    """Refuses what the model does not take, or does not give.

    Args:
        signature: Declared; a lenient one refuses nothing.
        asked: The request.

    Raises:
        BadRequest: If an input is unknown, missing, of another datatype or shape or of too many
            rows, or an output that is asked for is unknown.
    """
    if not signature.strict:
        return
    if signature.inputs:
        _check_inputs(signature, asked.inputs)
    if signature.outputs:
        known = {each.name for each in signature.outputs}
        for wanted in asked.outputs:
            if wanted.name not in known:
                raise BadRequest(
                    f"output '{wanted.name:.100}' is unknown; the model gives: {_names(known)}"
                )


def _check_inputs(signature: Signature, inputs: list[Tensor]) -> None:
    specs = {each.name: each for each in signature.inputs}
    given = {each.name for each in inputs}
    for name in given - specs.keys():
        raise BadRequest(f"input '{name:.100}' is unknown; the model takes: {_names(specs)}")
    for spec in signature.inputs:
        if spec.name not in given and not spec.optional:
            raise BadRequest(
                f"input '{spec.name}' is missing; the model takes: {_names(specs)};"
                f" the request has: {_names(given)}"
            )
    for tensor in inputs:
        _check_tensor(specs[tensor.name], tensor, signature.rows_max)
        if signature.rows_max and tensor.shape[0] != inputs[0].shape[0]:
            raise BadRequest(
                f"input '{tensor.name}': {tensor.shape[0]} rows, but input '{inputs[0].name}' has"
                f" {inputs[0].shape[0]}"
            )


def _check_tensor(spec: TensorSpec, tensor: Tensor, rows_max: int) -> None:
    if tensor.datatype != spec.datatype:
        raise BadRequest(
            f"input '{tensor.name}': datatype {tensor.datatype}; expected {spec.datatype}"
        )
    expected = f"shape {list(tensor.shape)}; expected {list(spec.shape)}"
    more = ", -1 standing for any size" if -1 in spec.shape else ""
    if rows_max:
        more += ", the first dimension counting rows"
    if len(tensor.shape) != len(spec.shape):
        raise BadRequest(f"input '{tensor.name}': {len(tensor.shape)} dimensions, {expected}{more}")
    for place, (size, right) in enumerate(zip(tensor.shape, spec.shape, strict=True)):
        if right not in (-1, size):
            raise BadRequest(f"input '{tensor.name}': dimension {place} of {expected}{more}")
    if rows_max and not 1 <= tensor.shape[0] <= rows_max:
        raise BadRequest(
            f"input '{tensor.name}': {tensor.shape[0]} rows; expected 1 to {rows_max}, the model's"
            " largest batch"
        )


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
