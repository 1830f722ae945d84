"""What each operation of the API takes and answers, in OpenAPI's terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = dict[str, Any]
Operation = Callable[[str, str], Schema]

ERROR: Schema = {
    "type": "object",
    "required": ["code", "type", "message"],
    "properties": {
        "code": {"type": "integer", "description": "HTTP status."},
        "type": {"type": "string", "description": "Kind of error."},
        "message": {"type": "string", "description": "What was wrong, and what would be right."},
        "traceback": {"type": "string", "description": "Of the handler, with debug_errors=true."},
    },
}
TEXT: Schema = {"type": "string"}
_STATUS: Schema = {"type": "object", "properties": {"status": TEXT}, "required": ["status"]}
_ANYTHING: Schema = {
    "description": "As the model's handler answers.",
    "content": {"*/*": {"schema": {}}},
}
_INPUT: Schema = {
    "required": False,
    "content": {
        "application/json": {"schema": {}},
        "text/plain": {"schema": TEXT},
        "multipart/form-data": {"schema": {"type": "object", "additionalProperties": True}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
}
REASONS = {
    400: "A parameter, a token or the request is wrong.",
    403: "The default version cannot be removed.",
    404: "No such model or version.",
    405: "The operation is switched off.",
    409: "The version is already registered.",
    413: "The body exceeds max_request_size.",
    500: "A worker or the handler failed.",
    503: "No worker, or no place in the queue.",
    504: "No result in time.",
    507: "Memory ran out.",
}


def parameter_of(name: str, place: str, schema: Schema, text: str) -> Schema:
    """Returns a parameter; those of a path are required."""
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": text,
        "schema": schema,
    }


def _query(name: str, kind: str, text: str, default: object = None) -> Schema:
    schema: Schema = {"type": kind}
    if default is not None:
        schema["default"] = default
    return parameter_of(name, "query", schema, text)


PARAMETERS: Mapping[str, Schema] = {
    "model": parameter_of("model", "path", TEXT, "Name of the model."),
    "version": parameter_of("version", "path", TEXT, "Version of the model."),
    "workflow": parameter_of("workflow", "path", TEXT, "Name of the workflow."),
    "region": parameter_of("region", "path", TEXT, "Name of the shared memory region."),
}
_TIMEOUT = parameter_of(
    "x-request-timeout", "header", {"type": "number"}, "The client's time limit, seconds."
)
_MODEL_NAME = _query("model_name", "string", "The model; not needed where there is only one.")

_REGISTER = [
    {**_query("url", "string", "File in the model store, or an allowed URL."), "required": True},
    _query("model_name", "string", "Name; that of the manifest if not given."),
    _query("handler", "string", "Handler in place of the manifest's."),
    _query("runtime", "string", "python, python3 or LSP.", "python"),
    _query("batch_size", "integer", "Most requests in a batch.", 1),
    _query("max_batch_delay", "integer", "Longest wait for a batch to fill, milliseconds.", 100),
    _query("initial_workers", "integer", "Workers to start.", 0),
    _query("synchronous", "boolean", "Whether to answer once the workers are up.", True),
    _query("response_timeout", "integer", "Limit for a batch, seconds.", 120),
    _query("startup_timeout", "integer", "Limit for loading, seconds.", 120),
    _query("s3_sse_kms", "boolean", "Accepted, without effect.", False),
]
_SCALE = [
    _query("min_worker", "integer", "Least number of workers.", 1),
    _query("max_worker", "integer", "Greatest number of workers; the least one if not given."),
    _query("synchronous", "boolean", "Whether to answer once the workers are up.", False),
    _query("model_version", "string", "Version, where the path has none."),
]
_PAGE = [
    _query("limit", "integer", "Models on a page, 1 to 100.", 100),
    _query("next_page_token", "integer", "Where the page begins.", 0),
]
_MODELS: Schema = {
    "type": "object",
    "properties": {
        "nextPageToken": TEXT,
        "models": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"modelName": TEXT, "modelUrl": TEXT},
            },
        },
    },
}
_DESCRIPTION: Schema = {"type": "array", "items": {"type": "object"}}


def json_answer(schema: Schema, text: str) -> Schema:
    """Returns an answer that is JSON."""
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def operation_of(
    summary: str,
    answers: Mapping[int, Schema],
    errors: tuple[int, ...] = (),
    parameters: list[Schema] | None = None,
    body: Schema | None = None,
) -> Operation:
    """Returns a recipe; the id comes from method and path, so that each is unique.

    Args:
        summary: One line.
        answers: By status.
        errors: Statuses whose body is an error.
        parameters: Beside those of the path.
        body: Of methods that have one.
    """

    def make(method: str, path: str) -> Schema:
        responses = {str(status): answer for status, answer in answers.items()}
        error = {"$ref": "#/components/schemas/Error"}
        responses |= {str(status): json_answer(error, REASONS[status]) for status in errors}
        made: Schema = {
            "operationId": method + re.sub(r"\W+", "_", path).rstrip("_"),
            "summary": summary,
            "responses": responses,
        }
        if parameters:
            made["parameters"] = list(parameters)
        if body is not None and method in ("post", "put"):
            made["requestBody"] = body
        return made

    return make


_INFERENCE_ERRORS = (400, 404, 413, 500, 503, 504, 507)


def _inference(summary: str, *more: Schema) -> Operation:
    parameters = [_TIMEOUT, *more]
    return operation_of(summary, {200: _ANYTHING}, _INFERENCE_ERRORS, parameters, _INPUT)


def _status(summary: str, *statuses: int) -> dict[int, Schema]:
    return {status: json_answer(_STATUS, summary) for status in statuses}


_HEALTH = operation_of(
    "Health: every model has the workers it needs, or is about to.",
    {200: json_answer(_STATUS, "Healthy."), 500: json_answer(_STATUS, "Unhealthy.")},
    (400,),
)
_OBJECT: Schema = {"type": "object"}


OPERATIONS: Mapping[str, Operation] = {
    "predict": _inference("Predict."),
    "explain": _inference("Explain a prediction."),
    "invoke": _inference("Predict; query parameters are inputs too.", _MODEL_NAME),
    "predict_v1": _inference("Predict, KServe's protocol V1."),
    "explain_v1": _inference("Explain, KServe's protocol V1."),
    "models_v1": operation_of(
        "The models, KServe's protocol V1.", {200: json_answer(_OBJECT, "Their names.")}, (400,)
    ),
    "explain_v2": _inference("Explain, KServe's protocol V2, as the handler's envelope reads it."),
    "ping": _HEALTH,
    "live": operation_of("Liveness.", {200: json_answer(_OBJECT, "The server answers.")}),
    "ready": operation_of(
        "Readiness.",
        {
            200: json_answer(_OBJECT, "Every model serves."),
            503: json_answer(_OBJECT, "Not every model does."),
        },
    ),
    "list_models": operation_of(
        "List the models.", {200: json_answer(_MODELS, "A page.")}, (400,), _PAGE
    ),
    "register": operation_of(
        "Register a model.",
        _status("The model is registered; 202: workers are being started.", 200, 202),
        (400, 404, 405, 409, 500, 507),
        _REGISTER,
        {"required": False, "content": {"application/json": {"schema": _OBJECT}}},
    ),
    "describe": operation_of(
        "Describe a model.",
        {200: json_answer(_DESCRIPTION, "One object a version.")},
        (400, 404, 500, 503),
        [_query("customized", "boolean", "Whether to ask the handler too.", False)],
    ),
    "scale": operation_of(
        "Set the number of workers.",
        _status("200: done; 202: begun; 206: not all are up.", 200, 202, 206),
        (400, 404, 500),
        _SCALE,
    ),
    "set_default": operation_of("Make a version the default.", _status("Done.", 200), (400, 404)),
    "traffic": operation_of(
        "Show how requests that name no version are shared between the versions.",
        {200: json_answer(_OBJECT, "The default version, weights and shadow.")},
        (400, 404),
    ),
    "direct": operation_of(
        "Share requests that name no version between versions, or copy them to one.",
        {200: json_answer(_OBJECT, "The rules now in force.")},
        (400, 404),
        None,
        {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _OBJECT,
                    "example": {"weights": {"1.0": 90, "2.0": 10}, "shadow": "2.0"},
                }
            },
        },
    ),
    "unregister": operation_of(
        "Unregister a version, the default one if none is given.",
        _status("Done.", 200),
        (400, 403, 404, 405),
    ),
    "ready_v1": operation_of(
        "Readiness of a model, KServe's protocol V1.",
        {200: json_answer(_OBJECT, "Name and readiness.")},
        (400, 404),
    ),
    "token": operation_of(
        "Renew a token; needs the API key.",
        {200: {"description": "The new key is in the key file."}},
        (400,),
        [{**_query("type", "string", "inference or management."), "required": True}],
    ),
    "predict_workflow": _inference("Send a request through a workflow."),
    "list_workflows": operation_of(
        "List the workflows.", {200: json_answer(_OBJECT, "A page.")}, (400,), _PAGE
    ),
    "register_workflow": operation_of(
        "Register a workflow and the models of its nodes.",
        _status("The workflow is registered.", 200),
        (400, 404, 405, 409, 500, 507),
        [
            _query("url", "string", "File in the workflow store, or an allowed URL."),
            _query("workflow_name", "string", "Instead of the archive's own name."),
        ],
        {"required": False, "content": {"application/json": {"schema": _OBJECT}}},
    ),
    "describe_workflow": operation_of(
        "Describe a workflow.", {200: json_answer(_DESCRIPTION, "One object.")}, (400, 404)
    ),
    "unregister_workflow": operation_of(
        "Unregister a workflow and its models.", _status("Done.", 200), (400, 404, 405)
    ),
    "metrics": operation_of(
        "Metrics, as Prometheus reads them.",
        {200: {"description": "Samples.", "content": {"text/plain": {"schema": TEXT}}}},
        (),
        [
            {
                **parameter_of(
                    "name[]", "query", {"type": "array", "items": TEXT}, "Samples to keep."
                ),
                "explode": True,
            }
        ],
    ),
}
