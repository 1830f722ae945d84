"""What each operation of the Open Inference Protocol takes and answers, in OpenAPI's terms."""

from __future__ import annotations

from collections.abc import Mapping

from marserve.archiver.signature import DATATYPES
from marserve.frontend.api.openapi_operations import (
    REASONS,
    TEXT,
    Operation,
    Schema,
    json_answer,
    operation_of,
    parameter_of,
)

_ERROR: Schema = {"type": "object", "properties": {"error": TEXT}, "required": ["error"]}
_OBJECT: Schema = {"type": "object"}
_LIST: Schema = {"type": "array", "items": _OBJECT}
_BINARY: Schema = {"schema": {"type": "string", "format": "binary"}}
_ERRORS = (400, 404, 405)
_ASKING_ERRORS = (*_ERRORS, 408, 413, 500, 501, 503, 504, 507)
_MORE_REASONS = {408: "The body did not come in time.", 501: "The model answers in pieces."}
_NOTHING: Schema = {"description": "Done; the body is empty."}

_SHAPE: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_TENSOR: Schema = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": TEXT,
        "datatype": {"type": "string", "enum": list(DATATYPES)},
        "shape": _SHAPE,
        "data": {"type": "array", "items": {}},
        "parameters": _OBJECT,
    },
}
_WANTED: Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": TEXT, "parameters": _OBJECT},
}
_REQUEST: Schema = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": TEXT,
        "parameters": _OBJECT,
        "inputs": {"type": "array", "minItems": 1, "items": _TENSOR},
        "outputs": {"type": "array", "items": _WANTED},
    },
}
_RESPONSE: Schema = {
    "type": "object",
    "required": ["model_name", "outputs"],
    "properties": {
        "model_name": TEXT,
        "model_version": TEXT,
        "id": TEXT,
        "parameters": _OBJECT,
        "outputs": {"type": "array", "items": _TENSOR},
    },
}
_METADATA: Schema = {
    "type": "object",
    "required": ["name", "versions", "platform", "inputs", "outputs"],
    "properties": {
        "name": TEXT,
        "versions": {"type": "array", "items": TEXT},
        "platform": TEXT,
        "inputs": _LIST,
        "outputs": _LIST,
    },
}
_READY: Schema = {"type": "object", "properties": {"name": TEXT, "ready": {"type": "boolean"}}}
_ANSWER: Schema = {
    "description": "As the Open Inference Protocol says; binary if binary outputs were asked for.",
    "content": {"application/json": {"schema": _RESPONSE}, "application/octet-stream": _BINARY},
}
_EVENTS: Schema = {
    "description": "An event an answer; the last one is an error if the stream broke.",
    "content": {"text/event-stream": {"schema": TEXT}},
}
_HEADER_LENGTH = parameter_of(
    "Inference-Header-Content-Length",
    "header",
    {"type": "integer", "minimum": 0},
    "Bytes of the JSON part, where binary tensors follow it; 0 where there is none.",
)
_TIMEOUT = parameter_of(
    "x-request-timeout", "header", {"type": "number"}, "The client's time limit, seconds."
)


def _body(schema: Schema, required: bool = False, binary: bool = False) -> Schema:
    content: Schema = {"application/json": {"schema": schema}}
    if binary:
        content["application/octet-stream"] = _BINARY
    return {"required": required, "content": content}


def _v2(
    summary: str,
    answer: Schema,
    body: Schema | None = None,
    errors: tuple[int, ...] = _ERRORS,
    parameters: list[Schema] | None = None,
    more: Mapping[int, Schema] | None = None,
) -> Operation:
    answers = {200: answer, **(more or {})}
    known = {**REASONS, **_MORE_REASONS}
    answers |= {status: json_answer(_ERROR, known[status]) for status in errors}
    return operation_of(summary, answers, parameters=parameters, body=body)


def _asking(summary: str, answer: Schema, schema: Schema, binary: bool = True) -> Operation:
    parameters = [_TIMEOUT, _HEADER_LENGTH] if binary else [_TIMEOUT]
    return _v2(summary, answer, _body(schema, True, binary), _ASKING_ERRORS, parameters)


_PARAMETERS: Schema = {"type": "object", "properties": {"parameters": _OBJECT}}
_REGION: Schema = {
    "type": "object",
    "required": ["key", "byte_size"],
    "properties": {
        "key": TEXT,
        "offset": {"type": "integer", "minimum": 0},
        "byte_size": {"type": "integer", "minimum": 1},
    },
}
_CHANGED: tuple[int, ...] = (*_ERRORS, 408, 409, 500, 503, 507)
_GENERATED = json_answer(_OBJECT, "Each output by its name.")

V2_OPERATIONS: Mapping[str, Operation] = {
    "v2_server": _v2("Name, version and extensions.", json_answer(_OBJECT, "V2.")),
    "v2_live": _v2("Liveness, V2.", json_answer(_OBJECT, "The server answers.")),
    "v2_ready": _v2(
        "Readiness, V2.",
        json_answer(_OBJECT, "Ready."),
        more={503: json_answer(_OBJECT, "Not ready.")},
    ),
    "v2_model": _v2("Metadata of a model, V2.", json_answer(_METADATA, "Its tensors.")),
    "v2_model_ready": _v2(
        "Readiness of a model, V2.",
        json_answer(_READY, "Ready."),
        more={503: json_answer(_READY, "Not ready.")},
    ),
    "v2_config": _v2("Configuration of a model, in Triton's words.", json_answer(_OBJECT, "All.")),
    "v2_stats": _v2("Statistics of a model.", json_answer(_OBJECT, "Counts and nanoseconds.")),
    "v2_all_stats": _v2("Statistics of all models.", json_answer(_OBJECT, "The same, of all.")),
    "v2_infer": _asking("Infer: tensors in, tensors out.", _ANSWER, _REQUEST),
    "v2_infer_stream": _asking("Infer, answers as they come.", _EVENTS, _REQUEST),
    "v2_generate": _asking("Infer, values by names of inputs.", _GENERATED, _OBJECT, False),
    "v2_generate_stream": _asking("The same, answers as they come.", _EVENTS, _OBJECT, False),
    "v2_index": _v2(
        "The models and their states.",
        json_answer(_LIST, "Name, version, state and reason."),
        _body({"type": "object", "properties": {"ready": {"type": "boolean"}}}),
        (*_ERRORS, 413),
    ),
    "v2_load": _v2(
        "Load a model of the model store.", _NOTHING, _body(_PARAMETERS), (*_CHANGED, 413)
    ),
    "v2_unload": _v2("Unload a model.", _NOTHING, _body(_PARAMETERS), (*_CHANGED, 413)),
    "v2_logging": _v2("Settings of the log.", json_answer(_OBJECT, "All.")),
    "v2_change_logging": _v2(
        "Change settings of the log.", json_answer(_OBJECT, "All."), _body(_OBJECT), (*_ERRORS, 413)
    ),
    "v2_trace": _v2("Settings of traces.", json_answer(_OBJECT, "All.")),
    "v2_change_trace": _v2(
        "Change settings of traces.", json_answer(_OBJECT, "All."), _body(_OBJECT), (*_ERRORS, 413)
    ),
    "v2_shared_status": _v2("Regions of shared memory.", json_answer(_LIST, "Those registered.")),
    "v2_shared_register": _v2(
        "Register a region of shared memory.", _NOTHING, _body(_REGION, True), (*_ERRORS, 413)
    ),
    "v2_shared_unregister": _v2("Forget regions of shared memory.", _NOTHING),
    "v2_cuda_status": _v2("CUDA shared memory is not offered.", _NOTHING),
    "v2_cuda_register": _v2("CUDA shared memory is not offered.", _NOTHING),
    "v2_cuda_unregister": _v2("CUDA shared memory is not offered.", _NOTHING),
}
