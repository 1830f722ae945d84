"""The inference and metrics APIs, section by section: the real server, real archives, curl."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.curling import Curling, Response
from tests.e2e.running import running

MODELS = (
    "echo",
    "echo_class",
    "returning",
    "slow",
    "wrong_length",
    "exiting",
    "rejecting",
    "responding",
    "streaming",
    "counting",
    "base_style",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Curling]:
    properties = "default_workers_per_model=1"
    for server in running(tmp_path_factory.mktemp("inference"), properties=properties):
        for name in MODELS:
            server.pack(name, name)
        yield Curling(server.start())


def predict(served: Curling, model: str, body: str, *args: str) -> Response:
    text = ("-H", "Content-Type: text/plain", "--data-binary", body)
    return served.curl(f"/predictions/{model}", *text, *args)


def test_ping(served: Curling) -> None:
    answer = served.curl("/ping")

    assert (answer.status, answer.json()) == (200, {"status": "Healthy"})
    assert answer.headers["content-type"] == "application/json"


def test_headers_of_every_answer(served: Curling) -> None:
    for answer in (predict(served, "echo", "x"), served.curl("/nope")):
        assert uuid.UUID(answer.headers["x-request-id"]).version == 4
        assert answer.headers["pragma"] == "no-cache"
        assert answer.headers["cache-control"] == "no-cache; no-store, must-revalidate, private"
        assert answer.headers["expires"] == "Thu, 01 Jan 1970 00:00:00 UTC"
        assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.parametrize(
    ("wish", "body"),
    [
        ("bytes", b"\x00\x01\xfe\xff"),
        ("str", b"some text"),
        ("dict", b'{\n  "label": "cat",\n  "score": 0.5\n}'),
        ("list", b"[\n  1,\n  2.5,\n  null\n]"),
        ("number", b"7"),
        ("none", b"null"),
    ],
)
def test_result_kinds(served: Curling, wish: str, body: bytes) -> None:
    answer = predict(served, "returning", wish)

    assert (answer.status, answer.body) == (200, body)
    assert "content-type" not in answer.headers


def test_request_bodies(served: Curling, tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(bytes(range(256)))
    echo = "/predictions/echo"

    assert served.curl(echo, "-T", str(file)).body == file.read_bytes()
    assert served.curl(echo, "-F", f"data=@{file}").body == file.read_bytes()
    assert served.curl(echo, "-F", "a=1", "-F", "b=ü").json() == {"a": "1", "b": "ü"}
    assert served.curl(echo, "-d", "a=1&b=%C3%BC").json() == {"a": "1", "b": "ü"}
    assert served.curl(echo, "-d", "hello").body == b"hello"
    assert served.curl(echo, "-d", '{"text": "a=b"}').body == b'{"text": "a=b"}'
    as_json = served.curl(echo, "-H", "Content-Type: application/json", "-d", '{"a": [1, "ü"]}')
    assert as_json.json() == {"a": [1, "ü"]}
    broken = served.curl(echo, "-H", "Content-Type: application/json", "-d", "{")
    assert broken.body == b"{"
    assert served.curl(echo).body == b""


@pytest.mark.parametrize(
    ("path", "explain"),
    [
        ("/predictions/echo_class", "False"),
        ("/predictions/echo_class/", "False"),
        ("/predictions/echo_class/1.0", "False"),
        ("/predictions/echo_class/1.0/more/path", "False"),
        ("/explanations/echo_class", "True"),
        ("/explanations/echo_class/1.0", "True"),
        ("/v1/models/echo_class:predict", "False"),
        ("/v1/models/echo_class:explain", "True"),
        ("/v2/models/echo_class/explain", "True"),
        ("/invocations?model_name=echo_class", "False"),
        ("/models/echo_class/invoke", "False"),
        ("/echo_class/predict", "False"),
        ("/echo_class/1.0/predict", "False"),
    ],
)
def test_paths(served: Curling, path: str, explain: str) -> None:
    answer = served.curl(path, "-H", "Content-Type: text/plain", "-d", "hi")

    assert answer.status == 200
    said = answer.json()
    assert (said["echo"], said["explain"], said["version"]) == ("hi", explain, "1.0")
    assert said["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("model", "body", "status", "kind", "message"),
    [
        ("none", "", 404, "ModelNotFoundException", "Model not found: none"),
        (
            "echo/9",
            "",
            404,
            "ModelVersionNotFoundException",
            "Model version: 9 does not exist for model: echo",
        ),
        ("rejecting", "x", 500, "InternalServerException", "ValueError"),
        ("wrong_length", "x", 500, "InternalServerException", "2"),
        ("wrong_length", "dict", 500, "InternalServerException", ""),
        ("returning", "object", 500, "InternalServerException", "object"),
    ],
)
def test_errors(
    served: Curling, model: str, body: str, status: int, kind: str, message: str
) -> None:
    answer = predict(served, model, body)
    error = answer.json()

    assert (answer.status, error["code"], error["type"]) == (status, status, kind)
    assert message in error["message"]
    assert "/" not in error["message"].replace("/ ", "")
    assert answer.body.endswith(b"\n}\n")


@pytest.mark.parametrize("wish", ["sys", "hard", "kill"])
def test_worker_that_dies(served: Curling, wish: str) -> None:
    answer = predict(served, "exiting", wish)

    assert answer.status in (500, 507)
    assert answer.json()["type"] == "InternalServerException"
    assert predict(served, "exiting", "x").text == "alive"


def test_time_limit_of_the_client(served: Curling) -> None:
    answer = predict(served, "slow", "1", "-H", "x-request-timeout: 0.2")

    assert (answer.status, answer.json()["type"]) == (504, "RequestTimeoutException")
    assert predict(served, "slow", "0").text == "slept 0"


def as_json(served: Curling, path: str, body: object, *args: str) -> Response:
    kind = ("-H", "Content-Type: application/json")
    return served.curl(path, *kind, "-d", json.dumps(body), *args)


def test_handlers_shape_their_responses(served: Curling) -> None:
    wish = {"status": 201, "phrase": "Made", "content_type": "text/x", "headers": {"X-Mine": "1"}}
    answer = as_json(served, "/predictions/responding", wish)

    assert (answer.status, answer.text) == (201, "responded")
    assert answer.headers["content-type"] == "text/x"
    assert answer.headers["x-mine"] == "1"
    assert as_json(served, "/predictions/responding", {"status": 422}).status == 422
    bodiless = as_json(served, "/predictions/responding", {"status": 204})
    assert (bodiless.status, bodiless.body) == (204, b"")


@pytest.mark.parametrize(
    "wish",
    [{"status": 42}, {"headers": {"X-Split": "a\r\nSet-Cookie: b"}}, {"headers": {"a b": "c"}}],
)
def test_responses_that_http_cannot_carry(served: Curling, wish: object) -> None:
    answer = as_json(served, "/predictions/responding", wish)

    assert (answer.status, answer.json()["type"]) == (500, "InternalServerException")
    assert "set-cookie" not in answer.headers


def test_streams(served: Curling) -> None:
    text = ("-H", "Content-Type: text/plain", "-d")
    answer = served.curl("/predictions/streaming", *text, "3")

    assert answer.status == 200
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.text == "hello 0 hello 1 hello 2 done"
    raw = served.curl(
        "/predictions/streaming", "--raw", "-H", "Content-Type: text/plain", "-d", "1"
    )
    assert raw.body == b"8\r\nhello 0 \r\n4\r\ndone\r\n0\r\n\r\n"


def test_streams_to_clients_without_chunks(served: Curling) -> None:
    body = ("-H", "Content-Type: text/plain", "-d", "2")
    answer = served.curl("/predictions/streaming", "--http1.0", *body)

    assert answer.text == "hello 0 hello 1 done"
    assert "transfer-encoding" not in answer.headers


def test_base_handler(served: Curling) -> None:
    assert as_json(served, "/predictions/base_style", [1, 2]).json() == [2.0, 4.0]
    assert as_json(served, "/explanations/base_style", [1, 2]).json() == [2.0, 2.0]
    path = "/models/base_style?customized=true"
    (described,) = served.manage("GET", path).json()
    assert described["customizedMetadata"]["multiplies_by"] == 2


def test_metrics_of_handlers(served: Curling) -> None:
    for text in ("abc", "de"):
        assert predict(served, "counting", text).text == "counted"

    def counted() -> str:
        text = served.curl("/metrics", surface="metrics").text
        return text if 'Kind="plain"' in text and "RequestsCounted" in text else ""

    text = served.server.until(counted, "the handler's metrics are shown", 10)
    assert re.search(r"^# TYPE RequestsCounted counter$", text, re.MULTILINE)
    assert re.search(r'^InputSize\{.*ModelName="counting".*,\} [32]\.0$', text, re.MULTILINE)
    assert re.search(r'^InitCount\{.*Level="Model".*,\} [1-9]\.0$', text, re.MULTILINE)


def test_many_clients_get_their_own_answers(served: Curling) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: predict(served, "echo", f"body {i}").text, range(40)))

    assert answers == [f"body {i}" for i in range(40)]


def test_body_limit(served: Curling, tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(6_553_501))
    answer = served.curl("/predictions/echo", "-T", str(file))

    assert answer.status == 413
    message = answer.json()["message"]
    assert all(text in message for text in ("6553501", "6553500", "max_request_size"))
    file.write_bytes(bytes(6_000_000))
    assert served.curl("/predictions/echo", "-T", str(file)).body == file.read_bytes()


def test_description(served: Curling) -> None:
    for answer in (served.curl("/", "-X", "OPTIONS"), served.curl("/api-description")):
        assert answer.json()["openapi"].startswith("3.")
    model = served.curl("/predictions/echo", "-X", "OPTIONS").json()
    assert "/predictions/echo" in model["paths"]


def test_metrics(served: Curling) -> None:
    predict(served, "echo_class", "x")
    served.curl("/nope")
    answer = served.curl("/metrics", surface="metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    labels = r'\{model_name="echo_class",model_version="default",hostname="[^"]+",\}'
    for pattern in (
        r'Requests2XX\{Level="Host",Hostname="[^"]+",\} [1-9]\d*\.0',
        r'Requests4XX\{Level="Host",Hostname="[^"]+",\} [1-9]\d*\.0',
        rf"ts_inference_requests_total{labels} \d+\.0",
        rf"ts_inference_latency_microseconds{labels} \d+\.\d+",
        r'WorkerLoadTime\{WorkerName="W-\d+-echo_1\.0",Level="Host",Hostname="[^"]+",\} \d+\.\d+',
        r'MemoryUtilization\{Level="Host",Hostname="[^"]+",\} \d+\.\d+',
        r'PredictionTime\{ModelName="echo_class",Level="Model",Hostname="[^"]+",\} \d+\.\d+',
    ):
        assert re.search(f"^{pattern}$", answer.text, re.MULTILINE), pattern
    only = served.curl("/metrics?name[]=Requests4XX&name[]=Requests5XX", surface="metrics").text
    assert set(re.findall(r"^(\w+)\{", only, re.MULTILINE)) == {"Requests4XX", "Requests5XX"}


def test_logs(served: Curling) -> None:
    assert predict(served, "slow", "0").status == 200
    line = r'- /127\.0\.0\.1:\d+ "POST /predictions/slow HTTP/1\.1" 200 \d+\n'
    work = r"W-\d+-slow_1\.0-stdout MODEL_LOG - batch of 1 ends\n"

    for file, pattern in (("access_log.log", line), ("model_log.log", work)):
        path = served.root / "logs" / file
        found = partial(lambda path, pattern: re.search(pattern, path.read_text()), path, pattern)
        served.server.until(found, f"{pattern} comes into {file}", 10)
