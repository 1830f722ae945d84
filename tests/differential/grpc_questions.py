"""Calls of both gRPC services that both servers get, in this order, and where they may differ.

``differs`` names ``status``, ``message`` or ``answer``, each with words of docs/migration.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from tests.e2e.grpc_clients import Clients

from marserve.frontend.grpc import management_pb2 as m


@dataclass(frozen=True)
class Question:
    """One call.

    Args:
        ask: Makes the call and returns what can be compared.
        differs: Aspect to words of docs/migration.md.
    """

    name: str
    ask: Callable[[Clients], Any]
    differs: dict[str, str] = field(default_factory=dict)


def predict(name: str, model: str, body: bytes = b"x", **more: Any) -> Question:
    differs = more.pop("differs", {})
    return Question(name, lambda clients: clients.predict(model, body, **more), differs)


def stream(name: str, model: str, body: bytes, **more: Any) -> Question:
    differs = more.pop("differs", {})
    return Question(name, lambda clients: clients.stream(model, body, **more), differs)


def manage(name: str, method: str, message: Any, **more: Any) -> Question:
    def ask(clients: Clients) -> Any:
        text = getattr(clients.management, method)(message, timeout=60).msg
        try:
            return json.loads(text)
        except ValueError:
            return text

    return Question(name, ask, more.pop("differs", {}))


def outcome(asked: Question, clients: Clients) -> dict[str, Any]:
    """What a call comes to: its answer, or status and message of its error."""
    try:
        return {"answer": asked.ask(clients)}
    except grpc.RpcError as error:
        failed: Any = error
        return {"status": failed.code().name, "message": failed.details()}


CLASS = {"message": "the message and the name of a Java class"}
NOT_FOUND = CLASS | {"status": "a client can tell its own mistake from the server's"}
UNNAMED = CLASS | {"status": "no model named"}
FOLLOWS = CLASS | {"status": "status of a failed handler over gRPC"}
FIRST = {"answer": "`Predictions` of a handler that streams"}
UNCAUGHT = dict.fromkeys(("status", "message"), "an exception nobody caught")

QUESTIONS = [
    Question("ping", lambda clients: json.loads(clients.inference.Ping(Empty()).health)),
    predict("a prediction", "echo"),
    predict("bytes", "echo", bytes(range(256))),
    predict("a version", "echo", model_version="1.0"),
    predict("json stays bytes", "echo", b'{"a": 1}'),
    predict("a stream asked as one", "streaming", b"2", differs=FIRST),
    predict("an unknown model", "absent", differs=NOT_FOUND),
    predict("an unknown version", "echo", model_version="9", differs=NOT_FOUND),
    predict("no model", "", differs=UNNAMED),
    predict("raises", "raising", b"value", differs=FOLLOWS),
    predict("prediction exception", "raising", b"prediction", differs=CLASS),
    stream("a stream of an unknown model", "absent", b"x", differs=NOT_FOUND),
    manage("list", "ListModels", m.ListModelsRequest(limit=1)),
    manage("describe", "DescribeModel", m.DescribeModelRequest(model_name="echo")),
    manage(
        "describe a version",
        "DescribeModel",
        m.DescribeModelRequest(model_name="echo", model_version="1.0"),
    ),
    manage(
        "describe and ask",
        "DescribeModel",
        m.DescribeModelRequest(model_name="base_style", customized=True),
    ),
    manage(
        "describe unknown",
        "DescribeModel",
        m.DescribeModelRequest(model_name="absent"),
        differs=CLASS,
    ),
    manage(
        "set default",
        "SetDefault",
        m.SetDefaultRequest(model_name="echo", model_version="1.0"),
    ),
    manage(
        "set an unknown default",
        "SetDefault",
        m.SetDefaultRequest(model_name="echo", model_version="9"),
        differs=CLASS,
    ),
    manage(
        "register", "RegisterModel", m.RegisterModelRequest(url="versioned.mar", synchronous=True)
    ),
    manage(
        "register again",
        "RegisterModel",
        m.RegisterModelRequest(url="versioned.mar"),
        differs=UNCAUGHT,
    ),
    manage("register nothing", "RegisterModel", m.RegisterModelRequest(), differs=CLASS),
    manage(
        "register what is not there",
        "RegisterModel",
        m.RegisterModelRequest(url="no.mar"),
        differs=CLASS,
    ),
    manage(
        "scale",
        "ScaleWorker",
        m.ScaleWorkerRequest(model_name="versioned", min_worker=1, synchronous=True),
    ),
    predict("what was registered", "versioned"),
    manage("unregister", "UnregisterModel", m.UnregisterModelRequest(model_name="versioned")),
    manage(
        "unregister again",
        "UnregisterModel",
        m.UnregisterModelRequest(model_name="versioned"),
        differs=CLASS,
    ),
]
