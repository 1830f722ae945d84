"""Messages of the inference service: from bytes to requests, from chunks to bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marserve.frontend.api.exchange import checked_name
from marserve.frontend.errors import BadRequest, ServeError
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.inference_pb2 import PredictionResponse, PredictionsRequest, Status
from marserve.frontend.grpc.statuses import code_of
from marserve.frontend.types import InferenceRequest, Sink
from marserve.worker.wire import Buffer, Part

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.model import Model
    from marserve.frontend.registry import Registry

_PREDICTION, _SEQUENCE_ID = b"\x0a", b"\x12"  # number 1 and number 2, both of counted bytes


def find_model(message: PredictionsRequest, registry: Registry) -> Model:
    """Returns the model that a question is for.

    Raises:
        BadRequest: If it names none.
        ServeError: If there is none of that name and version.
    """
    if not message.model_name:
        raise BadRequest("Parameter model_name is required.")
    return registry.route(checked_name(message.model_name), message.model_version or None)


def request_of(
    message: PredictionsRequest, call: Call, id: str, sink: Sink, config: ServerConfig
) -> InferenceRequest:
    """Returns the request that a message stands for: an input is a part.

    The handler sees the call's metadata as headers, without the key where one is asked for.
    """
    headers = dict(call.head.headers)
    headers["explain"], headers["url_path"] = "False", ""
    inputs = message.input
    parts: list[Part] = []
    bodies: list[Buffer] = []
    for name, value in inputs.items():
        parts.append(Part(name, len(value)))
        bodies.append(value)
    if message.HasField("sequence_id"):
        headers[config.ts_header_key_sequence_id] = message.sequence_id
    for flag in (config.ts_header_key_sequence_start, config.ts_header_key_sequence_end):
        if flag in inputs:
            headers[flag] = inputs[flag].decode("latin-1")
    remaining_s = call.time_remaining()
    pinned = bool(message.model_version)
    return InferenceRequest(id, "predict", headers, parts, bodies, sink, remaining_s, pinned)


def encode_prediction(body: Buffer, question: PredictionsRequest) -> list[Buffer]:
    """Returns a ``PredictionResponse`` in pieces that belong together; the body is not copied."""
    pieces: list[Buffer] = [_PREDICTION, _varint(len(body)), body] if len(body) else []
    if question.HasField("sequence_id"):
        sequence = question.sequence_id.encode()
        pieces += (_SEQUENCE_ID, _varint(len(sequence)), sequence)
    return pieces


def encode_error(error: ServeError, question: PredictionsRequest) -> bytes:
    """Returns the ``PredictionResponse`` that says what failed."""
    status = Status(code=int(code_of(error)), message=error.message)
    answer = PredictionResponse(prediction=b"", status=status)
    if question.HasField("sequence_id"):
        answer.sequence_id = question.sequence_id
    return answer.SerializeToString()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
