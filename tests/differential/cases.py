"""The requests that both servers get, in this order, and where their answers may differ.

``differs`` names the aspects that do, each with words of the row in docs/migration.md that says so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One request.

    Args:
        name: Of the test.
        differs: Aspect (``status``, ``type``, ``message``, ``headers``, ``body``) to words of
            docs/migration.md.
    """

    name: str
    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "inference"
    differs: dict[str, str] = field(default_factory=dict)


TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PARTS = {"Content-Type": "multipart/form-data; boundary=b"}
MULTIPART = (
    b'--b\r\nContent-Disposition: form-data; name="data"; filename="f.txt"\r\n'
    b"Content-Type: text/plain\r\n\r\nfrom a file\r\n--b\r\n"
    b'Content-Disposition: form-data; name="more"\r\n\r\nplain field\r\n--b--\r\n'
)


def ask(name: str, body: Any = b"", headers: dict[str, str] = TEXT, **more: Any) -> Case:
    path = more.pop("path", "/predictions/echo")
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(name, more.pop("method", "POST"), path, data, headers, **more)


def manage(name: str, method: str, path: str, **more: Any) -> Case:
    return Case(name, method, path, kind="management", **more)


def responding(name: str, wish: dict[str, Any], **more: Any) -> Case:
    return ask(name, wish, JSON, path="/predictions/responding", **more)


RAISES = {"status": "handler raises", "message": "handler raises"}
RESULT = {"status": "wrong type or number of results", "message": "wrong type or number of results"}
CAUSE = {"message": "the same words, followed by the cause, the values or the remedy"}
NO_WORKER = {"headers": "no worker, queue full", "message": "no worker, queue full"}
UNPACKED = dict.fromkeys(("status", "body", "type", "message"), "stays registered, without workers")
TOO_LARGE = dict.fromkeys(("headers", "body", "type", "message"), "413 with an empty body")
STREAM = {"headers": "`ts_stream_next: true` in the head of a stream"}

INPUTS = [
    ask("text", b"hello"),
    ask("umlauts", "grün".encode()),
    ask("no text at all", b"\xff\xfe"),
    ask("text with a charset", b"hello", {"Content-Type": "text/plain; charset=utf-8"}),
    ask("html counts as text", b"<p>", {"Content-Type": "text/html"}),
    ask("json", {"a": [1, 2.5, None]}, JSON),
    ask("json text", b'"quoted"', JSON),
    ask("json with a charset", b"[1]", {"Content-Type": "application/json; charset=utf-8"}),
    ask("invalid json", b"{no json", JSON),
    ask("bytes", bytes(range(256)), BYTES),
    ask("unknown type", b"x", {"Content-Type": "application/x-unheard"}),
    ask("no type", b"x", {}),
    ask("nothing", b"", TEXT),
    ask("form", b"data=a+b%21&other=1", FORM),
    ask("multipart", MULTIPART, PARTS),
    ask("get", method="GET"),
    ask("put", b"x", method="PUT"),
    ask("version", b"x", path="/predictions/echo/1.0"),
    ask("rest of the path", b"x", path="/predictions/echo/1.0/more/path"),
    ask("trailing slash", b"x", path="/predictions/echo/"),
    ask("query is no input", b"x", path="/predictions/echo?a=b"),
    ask("encoded name", b"x", path="/predictions/e%63ho"),
    ask("invoke", b"x", path="/models/echo/invoke"),
    ask("invoke with a query", b"x", path="/models/echo/invoke?data=q"),
    ask("invocations", b"x", path="/invocations?model_name=echo"),
    ask("oldest form", b"x", path="/echo/predict"),
    ask("oldest form with a version", b"x", path="/echo/1.0/predict"),
    ask("kserve v1", {"instances": [1]}, JSON, path="/v1/models/echo:predict"),
]

RESULTS = [
    *(
        ask(f"result {kind}", kind.encode(), path="/predictions/returning")
        for kind in ("bytes", "str", "dict", "list", "number", "none", "tensor")
    ),
    responding("own status", {"status": 201}),
    responding("own status and phrase", {"status": 418, "phrase": "teapot", "body": "tea"}),
    responding("own type", {"content_type": "image/png"}),
    responding("own headers", {"headers": {"X-Own": "1"}}),
    responding("no content", {"status": 204, "body": ""}),
    ask("stream", b"3", path="/predictions/streaming", differs=STREAM),
    ask("explanation", [1, 2], JSON, path="/explanations/base_style"),
    ask("doubles", [1.0, 2.0], JSON, path="/predictions/base_style"),
]

FAILURES = [
    ask("handler raises", b"value", path="/predictions/raising", differs=RAISES),
    ask("prediction exception", b"prediction", path="/predictions/raising"),
    ask("memory error", b"memory", path="/predictions/raising", differs=CAUSE),
    ask("cuda error", b"cuda", path="/predictions/raising", differs=CAUSE),
    ask("wrong length", b"x", path="/predictions/wrong_length", differs=RESULT),
    ask("an object, no list", b"dict", path="/predictions/wrong_length", differs=RESULT),
    ask("unserialisable", b"object", path="/predictions/returning", differs=RESULT),
    ask("unknown model", b"x", path="/predictions/absent"),
    ask("unknown version", b"x", path="/predictions/echo/9.9"),
    ask("unknown path", b"x", path="/nothing/here/at/all"),
    ask("no model named", b"x", path="/invocations"),
    ask("too large", b"x" * 3_000_000, BYTES, differs=TOO_LARGE),
]

HEALTH = [
    Case("ping", "GET", "/ping"),
    Case("description", "OPTIONS", "/"),
    Case("metrics", "GET", "/metrics", kind="metrics"),
]

MANAGEMENT = [
    manage("list", "GET", "/models"),
    manage("first page", "GET", "/models?limit=2"),
    manage("next page", "GET", "/models?limit=2&next_page_token=2"),
    manage("last page", "GET", "/models?limit=100&next_page_token=3"),
    manage("describe", "GET", "/models/echo"),
    manage("describe a version", "GET", "/models/echo/1.0"),
    manage("describe all", "GET", "/models/echo/all"),
    manage("describe and ask", "GET", "/models/base_style?customized=true"),
    manage("describe unknown", "GET", "/models/absent"),
    manage("describe unknown version", "GET", "/models/echo/7"),
    manage("register without url", "POST", "/models"),
    manage("register empty url", "POST", "/models?url="),
    manage("register unknown", "POST", "/models?url=absent.mar"),
    manage("register again", "POST", "/models?url=echo.mar"),
    manage("register without workers", "POST", "/models?url=versioned.mar&initial_workers=0"),
    ask("no workers", b"x", path="/predictions/versioned", differs=NO_WORKER),
    manage("scale", "PUT", "/models/versioned?min_worker=1&synchronous=true"),
    ask("first version", b"x", path="/predictions/versioned"),
    manage("scale asynchronously", "PUT", "/models/versioned?min_worker=1"),
    manage("scale a version", "PUT", "/models/versioned/1.0?min_worker=1&synchronous=true"),
    manage(
        "scale least above most", "PUT", "/models/echo?min_worker=3&max_worker=2", differs=CAUSE
    ),
    manage("scale unknown", "PUT", "/models/absent?min_worker=1"),
    manage("scale unknown version", "PUT", "/models/echo/9?min_worker=1"),
    manage("register second version", "POST", "/models?url=versioned2.mar&initial_workers=1"),
    ask("default stays", b"x", path="/predictions/versioned"),
    ask("second version", b"x", path="/predictions/versioned/2.0"),
    manage("set default", "PUT", "/models/versioned/2.0/set-default"),
    ask("new default", b"x", path="/predictions/versioned"),
    manage("set default unknown", "PUT", "/models/versioned/9/set-default"),
    manage("set default of unknown", "PUT", "/models/absent/1.0/set-default"),
    manage("unregister default", "DELETE", "/models/versioned"),
    manage("unregister version", "DELETE", "/models/versioned/1.0"),
    manage("unregister last", "DELETE", "/models/versioned"),
    manage("unregister unknown", "DELETE", "/models/versioned"),
    manage("unregister unknown version", "DELETE", "/models/echo/9"),
    manage(
        "register broken", "POST", "/models?url=broken_load.mar&initial_workers=1", differs=CAUSE
    ),
    manage("broken is gone", "GET", "/models/broken_load", differs=UNPACKED),
    manage("kserve ready", "GET", "/v1/models/echo"),
    manage("kserve ready of unknown", "GET", "/v1/models/absent"),
    manage("unknown path", "GET", "/nothing"),
    manage("wrong method", "PATCH", "/models/echo"),
    manage("workflows", "GET", "/workflows"),
    manage("unknown workflow", "GET", "/workflows/absent"),
    ask("unknown workflow asked", b"x", path="/wfpredict/absent"),
]

CASES = [*INPUTS, *RESULTS, *FAILURES, *HEALTH, *MANAGEMENT]
