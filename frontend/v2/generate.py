"""The generate extension: a JSON object by the names of inputs in, one by those of outputs out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from marserve.frontend.errors import BadRequest
from marserve.frontend.v2.messages import Infer, described
from marserve.frontend.v2.tensors import from_json, to_json
from marserve.worker.wire import Part

if TYPE_CHECKING:
    from marserve.archiver.signature import Signature, TensorSpec
    from marserve.frontend.v2.messages import Answer
    from marserve.frontend.v2.plans import Plan
    from marserve.frontend.v2.rows import Row
    from marserve.frontend.v2.tensors import Tensor
    from marserve.worker.wire import Buffer

TEXT_INPUT, TEXT_OUTPUT = "text_input", "text_output"
_FIELDS = {"max_tokens": "max_new_tokens"}
"""Parameters of KServe's form that our text generation calls by another name."""
_INERT = frozenset({"details", "stream"})
_OURS = frozenset({"id", "parameters"})
_KINDS = {str: "BYTES", bool: "BOOL", int: "INT64", float: "FP64"}


def read_object(body: Buffer) -> dict[str, Any]:
    """Returns the object that a body is.

    Raises:
        BadRequest: If it is none.
    """
    try:
        value: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"expected a JSON object: {error}") from None
    return value


def is_infer(value: dict[str, Any]) -> bool:
    """Tells whether an object is a V2 inference request, as MLServer's clients send them here."""
    inputs = value.get("inputs")
    return (
        isinstance(inputs, list)
        and bool(inputs)
        and all(
            isinstance(each, dict) and {"name", "datatype", "shape"} <= each.keys()
            for each in inputs
        )
    )


def question(value: dict[str, Any], plan: Plan) -> Infer:
    """Returns the request that an object stands for.

    Args:
        value: Values by the names of inputs, ``id``, ``parameters``; where inputs are known, all
            other keys are parameters, too.
        plan: Knows the inputs.

    Raises:
        BadRequest: If a value fits no tensor; naming the input.
    """
    id, parameters = value.get("id", ""), value.get("parameters", {})
    if not isinstance(id, str):
        raise BadRequest("id: expected a text")
    if not isinstance(parameters, dict):
        raise BadRequest("parameters: expected an object")
    given = {key: each for key, each in value.items() if key not in _OURS}
    if plan.by_row:
        return Infer([], [], {}, id, [_row(given, parameters)])
    inputs, more = _by_signature(given, plan.signature)
    if not inputs:
        known = () if plan.signature is None else (each.name for each in plan.signature.inputs)
        raise BadRequest(f"no input is given; the model takes: {', '.join(known) or TEXT_INPUT}")
    return Infer(inputs, [], {**parameters, **more}, id)


def answer_object(value: dict[str, Any], asked: Infer, answer: Answer) -> dict[str, Any]:
    """Returns an answer as an object: each output by its name, a lone element without a list.

    Args:
        value: What was sent; a ``text_input`` is answered by a ``text_output``.
        asked: The same as a request.
        answer: With its outputs.

    Raises:
        BadRequest: If JSON has no form for an output.
    """
    found = described(asked, answer)
    known = {spec.name for spec in asked.inputs}
    for tensor in answer.outputs:
        data = to_json(tensor)
        lone = TEXT_INPUT in value and TEXT_INPUT not in known and len(answer.outputs) == 1
        found[TEXT_OUTPUT if lone else tensor.name] = data[0] if len(data) == 1 else data
    return found


def _row(given: dict[str, Any], parameters: dict[str, Any]) -> Row:
    """The fields of one request to a handler that takes one thing a request, as JSON."""
    fields = {_FIELDS.get(key, key): each for key, each in {**given, **parameters}.items()}
    for name in _INERT:
        fields.pop(name, None)
    if TEXT_INPUT in fields and "text" not in fields:
        fields["text"] = fields.pop(TEXT_INPUT)
    body = msgspec.json.encode(fields)
    return [Part("body", len(body), "application/json")], [body]


def _by_signature(
    given: dict[str, Any], signature: Signature | None
) -> tuple[list[Tensor], dict[str, Any]]:
    if signature is None or not signature.inputs:
        return [_guessed(name, each) for name, each in given.items()], {}
    specs = {each.name: each for each in signature.inputs}
    first = signature.inputs[0]
    if TEXT_INPUT in given and TEXT_INPUT not in specs and first.datatype == "BYTES":
        given = {first.name: given[TEXT_INPUT], **given}
        del given[TEXT_INPUT]
    inputs: list[Tensor] = []
    more: dict[str, Any] = {}
    for name, value in given.items():
        if name in specs:
            inputs.append(_declared(specs[name], value, bool(signature.rows_max)))
        elif signature.strict:
            more[name] = value
        else:
            inputs.append(_guessed(name, value))
    return inputs, more


def _declared(spec: TensorSpec, value: Any, has_rows: bool) -> Tensor:
    """A scalar, or a list, as one row of the tensor that is declared."""
    data = value if isinstance(value, list) else [value]
    if any(isinstance(each, (list, dict)) for each in data):
        raise BadRequest(f"input '{spec.name}': expected one value, or a flat list")
    if spec.datatype.startswith(("FP", "BF")):
        data = [float(each) if type(each) is int else each for each in data]
    shape = [1] * max(0, len(spec.shape) - 1) + [len(data)] if spec.shape else [1]
    fixed = list(spec.shape[1:] if has_rows else spec.shape)
    if fixed and fixed.count(-1) == 0:  # a tensor of known size may be given as a flat list
        shape = [1, *fixed] if has_rows else fixed
    return from_json(spec.name, spec.datatype, shape, data)


def _guessed(name: str, value: Any) -> Tensor:
    """A tensor of the kind that the values are of, for models that declare none."""
    data = value if isinstance(value, list) and value else [value]
    kinds = {type(each) for each in data}
    kind = "FP64" if kinds == {int, float} else _KINDS.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is None:
        raise BadRequest(f"input '{name:.100}': expected a text, a number, or a flat list of such")
    return from_json(name, kind, [len(data)], data)
