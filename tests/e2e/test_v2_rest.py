"""V2 over HTTP: the client of Triton, and curl, against a real server."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import tritonclient.http as triton
from tests.e2e.curling import Curling
from tests.e2e.running import BIN, running
from tests.tiny_models import build
from tritonclient.utils import InferenceServerException

DTYPES = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Curling]:
    root = tmp_path_factory.mktemp("v2")
    for server in running(root, properties="default_workers_per_model=1"):
        for name in ("tensors", "doubling", "streaming"):
            server.pack(name, name)
        saved = build("bert", "sequence_classification", root / "bert")
        command = [str(BIN / "archive-model"), "--from-pretrained", str(saved), "--model-name"]
        command += ["texts", "--task", "sequence_classification"]
        command += ["--export-path", str(server.store)]
        subprocess.run(command, check=True, capture_output=True)
        yield Curling(server.start())


@pytest.fixture
def client(served: Curling) -> Iterator[Any]:
    port = served.server.ports["inference"]
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield client


def tensor(name: str, word: str, array: Any, binary: bool = True) -> Any:
    made = triton.InferInput(name, list(array.shape), word)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def post(served: Curling, model: str, body: Any, *args: str) -> Any:
    text = body if isinstance(body, str) else json.dumps(body)
    return served.curl(f"/v2/models/{model}/infer", "-d", text, *args)


def values(name: str, word: str, shape: list[int], data: Any) -> dict[str, Any]:
    return {"inputs": [{"name": name, "datatype": word, "shape": shape, "data": data}]}


def test_health_and_metadata(client: Any, served: Curling) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tensors")
    assert client.is_model_ready("tensors", "1.0")
    assert client.get_server_metadata()["name"] == "marserve"
    assert client.get_model_metadata("tensors", "1.0")["versions"] == ["1.0"]
    assert {"name": "tensors", "version": "1.0", "state": "READY"} in (
        client.get_model_repository_index()
    )
    assert served.curl("/v2/health/live").json() == {"live": True}
    assert served.curl("/v2/").json()["name"] == "marserve"


@pytest.mark.parametrize("word", DTYPES)
def test_every_datatype_in_binary_and_json(client: Any, word: str) -> None:
    array = numpy.array([[0, 1, 2], [3, 4, 5]]).astype(DTYPES[word])
    json_too = word != "FP16"  # the client writes none
    for binary in (True, False) if json_too else (True,):
        asked = [triton.InferRequestedOutput("x", binary_data=binary)]
        result = client.infer("tensors", [tensor("x", word, array, binary)], outputs=asked)

        assert result.as_numpy("x").dtype == array.dtype
        numpy.testing.assert_array_equal(result.as_numpy("x"), array)


@pytest.mark.parametrize("binary", [True, False])
def test_bytes(client: Any, binary: bool) -> None:
    array = numpy.array([["a", ""], ["ü", "four"]], object)
    asked = [triton.InferRequestedOutput("x", binary_data=binary)]
    given = [tensor("x", "BYTES", array, binary), tensor("y", "INT32", numpy.ones(3, "int32"))]
    result = client.infer("tensors", given, outputs=asked, request_id="mine")

    read = [v if isinstance(v, bytes) else v.encode() for v in result.as_numpy("x").ravel()]
    assert read == [b"a", b"", "ü".encode(), b"four"]
    assert result.get_response()["id"] == "mine"
    assert result.as_numpy("y") is None


@pytest.mark.parametrize("method", ["gzip", "deflate"])
def test_compression(client: Any, method: str) -> None:
    array = numpy.arange(1000, dtype="float32")
    result = client.infer(
        "tensors",
        [tensor("x", "FP32", array)],
        request_compression_algorithm=method,
        response_compression_algorithm=method,
    )

    numpy.testing.assert_array_equal(result.as_numpy("x"), array)


def test_a_compressed_answer_is_compressed(served: Curling) -> None:
    body = values("x", "INT32", [500], [1] * 500)
    answer = post(served, "tensors", body, "-H", "Accept-Encoding: gzip")

    assert answer.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(answer.body))["outputs"][0]["data"] == [1] * 500


def sent(served: Curling, body: bytes, length: int) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.server.ports["inference"])
    headers = {"Inference-Header-Content-Length": str(length)}
    connection.request("POST", "/v2/models/tensors/infer", body, headers)
    response = connection.getresponse()
    with contextlib.closing(connection):
        return response.status, response.read()


@pytest.mark.parametrize("binary", [{}, {"x": True}, {"shapes": True, "y": True, "x": True}])
def test_requests_that_differ_in_their_bytes_alone(client: Any, binary: dict[str, bool]) -> None:
    generator = numpy.random.default_rng(1)
    names = list(binary) or ["x", "y", "shapes"]
    outputs = [triton.InferRequestedOutput(name, binary_data=binary[name]) for name in binary]
    for _ in range(4):
        arrays = {name: generator.random((2, 3), "float32") for name in ("x", "y")}
        inputs = [tensor(name, "FP32", array) for name, array in arrays.items()]
        answer = client.infer("tensors", inputs, outputs=outputs or None)
        assert names == [each["name"] for each in answer.get_response()["outputs"]]
        for name in {*arrays} & {*names}:
            numpy.testing.assert_array_equal(arrays[name], answer.as_numpy(name))


def test_a_request_that_is_alike_but_fails(client: Any, served: Curling) -> None:
    for name, fine in (("x", True), ("break", False), ("x", True), ("break", False)):
        inputs = [tensor(name, "FP32", numpy.ones((1, 2), "float32"))]
        if fine:
            assert client.infer("tensors", inputs).as_numpy(name).tolist() == [[1, 1]]
        else:
            with pytest.raises(InferenceServerException, match="broken on request"):
                client.infer("tensors", inputs)
    body, length = client.generate_request_body([tensor("x", "INT8", numpy.ones(5, "int8"))])
    for more, status in ((b"", 200), (b"1", 400), (b"", 200), (b"123", 400)):
        assert sent(served, body + more, length)[0] == status
    assert sent(served, body[:-1], length)[0] == 400


def test_many_requests_each_with_its_id(client: Any) -> None:
    for number in range(600):  # more than what is remembered of any model
        array = numpy.array([number % 7, number], "int32")
        answer = client.infer("tensors", [tensor("x", "INT32", array)], request_id=f"n{number}")
        assert answer.get_response()["id"] == f"n{number}"
        assert answer.as_numpy("x").tolist() == array.tolist()


def test_an_empty_tensor(client: Any) -> None:
    result = client.infer("tensors", [tensor("x", "FP32", numpy.ones((0, 3), "float32"))])

    assert result.as_numpy("x").shape == (0, 3)


def test_nested_and_flat_data(served: Curling) -> None:
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]]):
        answer = post(served, "tensors", values("x", "FP32", [2, 2], data))
        assert answer.status == 200
        assert answer.json()["outputs"][0]["data"] == [1.0, 2.0, 3.0, 4.0]
        assert (answer.json()["model_name"], answer.json()["model_version"]) == ("tensors", "1.0")


def test_base_handler(client: Any) -> None:
    array = numpy.array([[1, 2], [3, 4]], "float32")
    result = client.infer("doubling", [tensor("x", "FP32", array)])

    numpy.testing.assert_array_equal(result.as_numpy("output"), array * 2)


@pytest.mark.parametrize("name", ["text", "inputs", "anything"])
def test_rows_of_text(client: Any, served: Curling, name: str) -> None:
    texts = ["the first text", "another one", "a third"]
    result = client.infer("texts", [tensor(name, "BYTES", numpy.array(texts, object))])

    [output] = result.get_response()["outputs"]
    assert output["shape"][0] == 3
    alone = [
        served.curl("/predictions/texts", "-H", "Content-Type: text/plain", "-d", text).body
        for text in texts
    ]
    assert [v.decode() for v in result.as_numpy(output["name"])] == [b.decode() for b in alone]


@pytest.mark.parametrize(
    ("model", "body", "status", "text"),
    [
        ("tensors", "{", 400, "no V2 inference request"),
        ("tensors", {"inputs": []}, 400, "at least one tensor"),
        ("tensors", values("x", "FP31", [1], [1]), 400, "input 'x': datatype 'FP31'"),
        ("tensors", values("x", "FP32", [3], [1]), 400, "input 'x': 1 values in data"),
        ("tensors", values("x", "FP32", [-1], [1]), 400, "input 'x': shape [-1]"),
        ("tensors", values("x", "FP32", [2, 2], [[1, 2], [3]]), 400, "input 'x': data are not"),
        ("tensors", values("x", "INT8", [1], [300]), 400, "input 'x': data are not INT8"),
        ("tensors", values("x", "INT32", [1], [1.5]), 400, "input 'x': data are not INT32"),
        ("tensors", values("x", "BYTES", [1], [1]), 400, "input 'x': data are not BYTES"),
        ("tensors", values("x", "FP32", [1], None), 400, "input 'x': data is no list"),
        ("tensors", values("break", "FP32", [1], [1]), 500, "broken on request"),
        ("doubling", values("x", "BYTES", [1], ["a"]), 400, "numeric tensor"),
        ("texts", values("x", "FP32", [2, 2], [1, 2, 3, 4]), 400, "input 'x': shape [2, 2]"),
        (
            "tensors",
            values("x", "INT8", [1], [1]) | {"outputs": [{"name": "z"}]},
            400,
            "output 'z' is unknown; the model gave: x, shapes",
        ),
        ("streaming", values("x", "INT8", [1], [1]), 501, "in pieces"),
        ("nowhere", values("x", "INT8", [1], [1]), 404, "nowhere"),
        ("tensors/versions/7", values("x", "INT8", [1], [1]), 404, "7"),
    ],
)
def test_errors(served: Curling, model: str, body: Any, status: int, text: str) -> None:
    answer = post(served, model, body)

    assert answer.status == status, answer.body
    assert list(answer.json()) == ["error"]
    assert text in answer.json()["error"]
    assert "/" not in answer.json()["error"].replace("true/false", "")


def test_errors_of_binary_data(client: Any, served: Curling) -> None:
    head = {"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 8}}
    text = json.dumps({"inputs": [head]})
    size = ("-H", f"Inference-Header-Content-Length: {len(text)}")
    assert (
        "8 bytes of binary data"
        in post(served, "tensors", text + "12345678", *size).json()["error"]
    )
    assert (
        "input 'x': binary_data_size is 8" in post(served, "tensors", text, *size).json()["error"]
    )
    with pytest.raises(InferenceServerException, match="Model not found: none"):
        client.infer("none", [tensor("x", "INT8", numpy.ones(1, "int8"))])


def test_a_bad_row_is_named(served: Curling) -> None:
    answer = post(served, "texts", values("x", "BYTES", [2], ["fine", "{oops"]))

    assert answer.status == 400
    assert answer.json()["error"].startswith("row 1: the request starts with a brace")


def test_what_is_not_offered(served: Curling) -> None:
    for method, path, status in (
        ("GET", "/v2/cudasharedmemory/status", 400),
        ("GET", "/v2/systemsharedmemory/status", 400),
        ("POST", "/v2/repository/models/nothing/load", 404),
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2/models/tensors/infer", 405),
    ):
        answer = served.curl(path, "-X", method)
        assert (answer.status, list(answer.json())) == (status, ["error"])


def test_an_envelope_reads_the_body_itself(tmp_path: Path) -> None:
    for server in running(tmp_path, properties="service_envelope=kservev2"):
        server.pack("summing", "summing")
        answer = post(Curling(server.start()), "summing", values("x", "FP32", [3], [1, 2, 3]))

        assert answer.status == 200, answer.body
        [output] = answer.json()["outputs"]
        assert (output["name"], output["data"]) == ("x", [6.0])
