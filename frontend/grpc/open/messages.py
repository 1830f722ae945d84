"""Messages of V2 infer: from bytes to what is asked, and from answers to bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from marserve.frontend.errors import BadRequest
from marserve.frontend.grpc import open_inference_pb2 as pb
from marserve.frontend.grpc.calls import read
from marserve.frontend.grpc.open.contents import (
    TYPED,
    counted,
    from_typed,
    length_of,
    read_parameters,
    take_raw,
    to_typed,
    write_parameters,
)
from marserve.frontend.v2.messages import Answer, Infer, Wanted, check_names
from marserve.frontend.v2.shared_memory import PARAMETERS as PLACES
from marserve.frontend.v2.shared_memory import REGION, Regions
from marserve.frontend.v2.tensors import Tensor, from_raw
from marserve.worker.wire import Buffer

_ID, _RAW_OUTPUT, _RESPONSE = 3, 6, 2  # numbers of fields
FINAL = "triton_final_response"
ASKS_FOR_FINAL = "triton_enable_empty_final_response"


@dataclass(slots=True, frozen=True)
class Question:
    """A ``ModelInferRequest``.

    Args:
        model: Name.
        version: None for the default one.
        asked: The rest.
        typed: Whether tensors came in typed fields, so that they go back in such.
        final: Whether the end of a stream is to be said in a message of its own.
    """

    model: str
    version: str | None
    asked: Infer
    typed: bool
    final: bool = False


def parse(data: Buffer, regions: Regions) -> Question:
    """Reads a ``ModelInferRequest``.

    Args:
        data: The message.
        regions: Shared memory that inputs may be in.

    Raises:
        BadRequest: If it is none; naming the tensor.
    """
    data, raws = take_raw(data)
    message: pb.ModelInferRequest = read(pb.ModelInferRequest.FromString, data)
    raws = raws or list(message.raw_input_contents)
    inputs = _inputs(message, raws, regions)
    check_names([each.name for each in inputs])
    outputs = [Wanted(each.name, read_parameters(each.parameters)) for each in message.outputs]
    parameters = read_parameters(message.parameters) if message.parameters else {}
    final = bool(parameters.pop(ASKS_FOR_FINAL, False))
    asked = Infer(inputs, outputs, parameters, message.id)
    typed = not raws and any(each.HasField("contents") for each in message.inputs)
    return Question(message.model_name, message.model_version or None, asked, typed, final)


def _inputs(
    message: pb.ModelInferRequest, raws: Sequence[Buffer], regions: Regions
) -> list[Tensor]:
    found, taken = [], 0
    for each in message.inputs:
        parameters = read_parameters(each.parameters) if each.parameters else {}
        typed = each.HasField("contents")
        if raws and typed:
            raise BadRequest(
                f"input '{each.name}' has contents, and there are raw_input_contents as well;"
                " expected one of the two"
            )
        if REGION in parameters:
            raw: Buffer = regions.read(each.name, parameters)
        elif not raws:
            raw = from_typed(each.name, each.datatype, each.contents)
        elif taken == len(raws):
            raise _miscounted(message, raws)
        else:
            raw = raws[taken]
            taken += 1
        tensor = from_raw(each.name, each.datatype, tuple(each.shape), raw)
        if parameters and not parameters.keys() <= PLACES:
            own = {name: value for name, value in parameters.items() if name not in PLACES}
            tensor = replace(tensor, parameters=own)
        found.append(tensor)
    if taken != len(raws):
        raise _miscounted(message, raws)
    return found


def _miscounted(message: pb.ModelInferRequest, raws: Sequence[Buffer]) -> BadRequest:
    wanted = sum(REGION not in each.parameters for each in message.inputs)
    return BadRequest(
        f"raw_input_contents has {len(raws)} entries for {wanted} inputs; expected one for each,"
        " in their order"
    )


def render(question: Question, answer: Answer, regions: Regions) -> list[Buffer]:
    """Returns a ``ModelInferResponse`` in pieces that belong together; raw outputs are not copied.

    Raw contents are answered by raw ones. Typed ones are answered typed, if all outputs can be.

    Raises:
        BadRequest: If an output is larger than its shared memory.
    """
    answer = _placed(question, answer, regions)
    pieces: list[Buffer] = []
    if question.typed and all(each.datatype in TYPED for each in answer.outputs):
        pieces.append(_typed(answer))
    else:
        if answer.parameters or any(each.parameters for each in answer.outputs):
            pieces.append(_described(answer).SerializeToString())
        else:
            outputs = tuple((each.name, each.datatype, each.shape) for each in answer.outputs)
            pieces.append(_head(answer.model, answer.version, outputs))
        for each in answer.outputs:
            pieces += counted(_RAW_OUTPUT, each.raw)
    if question.asked.id:
        pieces += counted(_ID, question.asked.id.encode())
    return pieces


def _placed(question: Question, answer: Answer, regions: Regions) -> Answer:
    """Writes the outputs that go to shared memory; what is left of them is where they are."""
    places = {
        each.name: each.parameters for each in question.asked.outputs if REGION in each.parameters
    }
    if not places:
        return answer
    outputs = []
    for each in answer.outputs:
        if each.name in places:
            told = regions.write(each.name, each.raw, places[each.name])
            each = replace(each, raw=b"", parameters={**each.parameters, **told})
        outputs.append(each)
    return replace(answer, outputs=outputs)


def in_stream(question: Question, answer: Answer, regions: Regions) -> list[Buffer]:
    """Returns a ``ModelStreamInferResponse`` that holds an answer, in pieces."""
    answer = replace(answer, parameters={**answer.parameters, FINAL: answer.last})
    pieces = render(question, answer, regions)
    return [length_of(_RESPONSE, sum(map(len, pieces))), *pieces]


def stream_error(text: str, id: str) -> bytes:
    """Returns the ``ModelStreamInferResponse`` that says what failed."""
    message = pb.ModelStreamInferResponse(error_message=text)
    if id:
        message.infer_response.id = id
    return message.SerializeToString()


def _typed(answer: Answer) -> bytes:
    message = _described(answer)
    for tensor, out in zip(answer.outputs, message.outputs, strict=True):
        to_typed(tensor, out.contents)
    return message.SerializeToString()


def _described(answer: Answer) -> pb.ModelInferResponse:
    message = pb.ModelInferResponse(model_name=answer.model, model_version=answer.version)
    write_parameters(answer.parameters.items(), message.parameters)
    for each in answer.outputs:
        out = message.outputs.add(name=each.name, datatype=each.datatype, shape=each.shape)
        write_parameters(each.parameters.items(), out.parameters)
    return message


_Outputs = tuple[tuple[str, str, tuple[int, ...]], ...]


@lru_cache(256)  # a model answers in few shapes
def _head(model: str, version: str, outputs: _Outputs) -> bytes:
    message: Any = pb.ModelInferResponse(model_name=model, model_version=version)
    for name, datatype, shape in outputs:
        message.outputs.add(name=name, datatype=datatype, shape=shape)
    return bytes(message.SerializeToString())
