"""The extensions of V2 over HTTP, by the client of Triton and by curl, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tests.e2e.curling import Curling
from tests.e2e.running import BIN, SERVICES, running
from tests.tiny_models import build
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

DECLARED = """
signature:
  inputs:
    - {name: x, datatype: FP32, shape: [-1, 3]}
    - {name: hint, datatype: BYTES, shape: [-1, 1], optional: true}
  outputs:
    - {name: x, datatype: FP32, shape: [-1, 3], labels: [cat, dog, hen]}
    - {name: hint, datatype: BYTES, shape: [-1, 1]}
    - {name: shapes, datatype: BYTES, shape: [-1]}
  maxRows: 4
"""
ONE_INPUT = "signature: {inputs: [{name: x, datatype: INT16, shape: [-1]}]}"
SEQUENCES = "sequenceBatching: true\nmaxNumSequence: 4\nmaxSequenceJobQueueSize: 8\nbatchSize: 2"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Curling]:
    root = tmp_path_factory.mktemp("v2x")
    properties = "default_workers_per_model=1\nallow_client_shm=true"
    for server in running(root, properties=properties):
        server.pack("declared", "tensors", DECLARED)
        server.pack("raw", "tensors", ONE_INPUT)
        server.pack("free", "tensors")
        server.pack("sums", "v2_sums", SEQUENCES)
        server.pack("pieces", "streaming")
        for name in ("add", "decoupled"):
            shutil.copytree(SERVICES / "triton" / name, server.store / name)
        for name, task in (("texts", "sequence_classification"), ("writer", "text_generation")):
            kind = "gpt2" if name == "writer" else "bert"
            saved = build(kind, task, root / name)
            command = [str(BIN / "archive-model"), "--from-pretrained", str(saved), "--task", task]
            command += ["--model-name", name, "--export-path", str(server.store)]
            subprocess.run(command, check=True, capture_output=True)
        yield Curling(server.start())


@pytest.fixture
def client(served: Curling) -> Iterator[Any]:
    port = served.server.ports["inference"]
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield client


def given(name: str, array: Any, word: str = "FP32", binary: bool = True) -> Any:
    made = triton.InferInput(name, list(array.shape), word)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def tensor(name: str, word: str, shape: list[int], data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": word, "shape": shape, "data": data}


def ask(served: Curling, path: str, body: Any, *args: str) -> Any:
    text = body if isinstance(body, str) else json.dumps(body)
    return served.curl(path, "-d", text, *args)


def test_declared_metadata_and_configuration(client: Any) -> None:
    found = client.get_model_metadata("declared")
    assert found["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
    assert [each["name"] for each in found["outputs"]] == ["x", "hint", "shapes"]
    config = client.get_model_config("declared")
    assert config["max_batch_size"] == 4
    assert config["input"][0] == {"name": "x", "data_type": "TYPE_FP32", "dims": [3]}
    assert client.get_model_config("add", "2")["backend"] == "python"
    assert client.get_model_metadata("add")["versions"] == ["1", "2"]


def test_metadata_of_a_task_is_what_it_answers(client: Any) -> None:
    for model, names in (("texts", ["text"]), ("writer", ["text"])):
        found = client.get_model_metadata(model)
        needed = [each["name"] for each in found["inputs"]][: len(names)]
        result = client.infer(model, [given(needed[0], numpy.array(["once"], object), "BYTES")])
        [answered] = result.get_response()["outputs"]
        assert [(e["name"], e["datatype"]) for e in found["outputs"]] == [
            (answered["name"], answered["datatype"])
        ]


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (
            [tensor("z", "FP32", [1, 3], [1, 2, 3])],
            "input 'z' is unknown; the model takes: hint, x",
        ),
        ([tensor("hint", "BYTES", [1, 1], ["a"])], "input 'x' is missing"),
        ([tensor("x", "FP64", [1, 3], [1, 2, 3])], "input 'x': datatype FP64; expected FP32"),
        ([tensor("x", "FP32", [3], [1, 2, 3])], "input 'x': 1 dimensions"),
        ([tensor("x", "FP32", [1, 2], [1, 2])], "input 'x': dimension 1 of shape [1, 2]"),
        ([tensor("x", "FP32", [5, 3], [0] * 15)], "input 'x': 5 rows; expected 1 to 4"),
    ],
)
def test_requests_are_checked(served: Curling, inputs: Any, text: str) -> None:
    answer = ask(served, "/v2/models/declared/infer", {"inputs": inputs})

    assert answer.status == 400
    assert text in answer.json()["error"]


def test_an_unknown_output_is_refused_before_the_model_runs(served: Curling) -> None:
    body = {"inputs": [tensor("x", "FP32", [1, 3], [1, 2, 3])], "outputs": [{"name": "y"}]}
    answer = ask(served, "/v2/models/declared/infer", body)

    assert (answer.status, answer.json()["error"]) == (
        400,
        "output 'y' is unknown; the model gives: hint, shapes, x",
    )


def test_classification(client: Any) -> None:
    array = numpy.array([[0.5, 3.0, 1.0], [9.0, 8.0, 7.0]], "float32")
    asked = [triton.InferRequestedOutput("x", class_count=2)]
    result = client.infer("declared", [given("x", array)], outputs=asked)

    assert result.as_numpy("x").tolist() == [
        [b"3.000000:1:dog", b"1.000000:2:hen"],
        [b"9.000000:0:cat", b"8.000000:1:dog"],
    ]


def test_statistics_count_rows_and_batches(client: Any) -> None:
    def counts() -> tuple[int, int, int, int]:
        [found] = client.get_inference_statistics("add", "2")["model_stats"]
        stats = found["inference_stats"]
        done = stats["success"]["count"], stats["fail"]["count"]
        return (found["inference_count"], found["execution_count"], *done)

    before = counts()
    one = numpy.ones((3, 2), "float32")
    client.infer("add", [given("A", one), given("B", one)], model_version="2")
    with pytest.raises(InferenceServerException, match="may not be -1"):
        client.infer("add", [given("A", -one), given("B", one)], model_version="2")
    after = counts()

    assert [b - a for a, b in zip(before, after, strict=True)] == [3, 2, 1, 1]
    [found] = client.get_inference_statistics("add", "2")["model_stats"]
    assert {each["batch_size"] for each in found["batch_stats"]} == {3}
    assert found["inference_stats"]["compute_infer"]["ns"] > 0
    names = [each["name"] for each in client.get_inference_statistics()["model_stats"]]
    assert {"add", "declared", "texts"} <= set(names)


def test_bfloat16(served: Curling) -> None:
    numbers = [1.5, -2.0, 3.140625, 1.00390625]  # the last one lies between two
    body = {"inputs": [tensor("x", "BF16", [4], numbers)]}
    [output, _] = ask(served, "/v2/models/free/infer", body).json()["outputs"]

    assert (output["datatype"], output["data"]) == ("FP32", [1.5, -2.0, 3.140625, 1.0])


def test_a_whole_body_is_the_only_input(served: Curling, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(numpy.arange(5, dtype="<i2").tobytes())
    answer = served.curl(
        "/v2/models/raw/infer",
        "--data-binary",
        f"@{tmp_path / 'body'}",
        "-H",
        "Inference-Header-Content-Length: 0",
    )

    size = int(answer.headers["inference-header-content-length"])
    outputs = json.loads(answer.body[:size])["outputs"]
    assert outputs[0]["shape"] == [5]
    assert answer.body[size : size + 10] == numpy.arange(5, dtype="<i2").tobytes()
    refused = ask(served, "/v2/models/free/infer", "", "-H", "Inference-Header-Content-Length: 0")
    assert (refused.status, "declare one input" in refused.json()["error"]) == (400, True)


def test_parameters_of_sequences(client: Any) -> None:
    def add(value: int, sequence: Any, **more: bool) -> int:
        array = numpy.array([value], "int32")
        result = client.infer(
            "sums", [given("x", array, "INT32")], sequence_id=sequence, priority=1, **more
        )
        return int(result.as_numpy("sum")[0])

    assert add(5, 7, sequence_start=True) == 5
    assert add(1, "other", sequence_start=True) == 1
    assert add(6, 7) == 11
    assert add(1, 7, sequence_end=True) == 12
    with pytest.raises(InferenceServerException, match="is not open"):
        add(1, 7)


def test_wrong_parameters_are_named(served: Curling) -> None:
    for parameters, text in (
        ({"priority": -1}, "priority"),
        ({"timeout": "soon"}, "timeout"),
        ({"sequence_id": 1.5}, "sequence_id"),
        ({"sequence_id": 1, "sequence_start": "yes"}, "sequence_start"),
    ):
        body = {"inputs": [tensor("x", "INT32", [1], [1])], "parameters": parameters}
        answer = ask(served, "/v2/models/sums/infer", body)
        assert (answer.status, text in answer.json()["error"]) == (400, True)


def test_generate(served: Curling) -> None:
    triton_form = ask(served, "/v2/models/raw/generate", {"x": [1, 2], "id": "me", "more": 1})
    assert triton_form.status == 200, triton_form.body
    assert triton_form.json()["x"] == [1, 2]
    assert triton_form.json()["id"] == "me"
    text = {"text_input": "once upon", "parameters": {"max_tokens": 4}}
    kserve = ask(served, "/v2/models/writer/generate", text)
    assert kserve.status == 200, kserve.body
    assert kserve.json()["text_output"].startswith("once upon")
    body = {"inputs": [tensor("x", "INT16", [2], [3, 4])]}
    mlserver = ask(served, "/v2/models/raw/generate", body).json()
    assert mlserver["outputs"][0]["data"] == [3, 4]
    for model, wrong in (("raw", {"y": 1}), ("raw", {"x": {}}), ("raw", []), ("raw", "{")):
        answer = ask(served, f"/v2/models/{model}/generate", wrong)
        assert (answer.status, list(answer.json())) == (400, ["error"])


def events(answer: Any) -> list[Any]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    pieces = answer.body.decode().split("\n\n")
    assert pieces.pop() == ""
    return [json.loads(piece.removeprefix("data: ")) for piece in pieces]


def test_streams_of_events(served: Curling) -> None:
    path = "/v2/models/decoupled/generate_stream"
    assert [each["NUMBER"] for each in events(ask(served, path, {"COUNT": 3}))] == [0, 1, 2]
    broken = events(ask(served, path, {"COUNT": 3, "FAIL_AT": 2}))
    assert [each.get("NUMBER") for each in broken] == [0, 1, None]
    assert "as asked" in broken[2]["error"]
    early = ask(served, path, {"COUNT": 3, "FAIL_AT": 0})
    assert (early.status, list(early.json())) == (500, ["error"])
    several = ask(served, "/v2/models/decoupled/generate", {"COUNT": 2})
    assert (several.status, "use generate_stream" in several.json()["error"]) == (400, True)
    assert ask(served, "/v2/models/decoupled/generate", {"COUNT": 1}).json()["NUMBER"] == 0
    body = {"inputs": [tensor("COUNT", "INT32", [1], [2])]}
    told = events(ask(served, "/v2/models/decoupled/infer_stream", body))
    assert [each["outputs"][0]["data"] for each in told] == [[0], [1]]
    assert ask(served, "/v2/models/decoupled/infer", body).status == 501


def test_a_client_that_leaves_a_stream_ends_its_request(client: Any, served: Curling) -> None:
    def failed() -> int:
        [found] = client.get_inference_statistics("decoupled")["model_stats"]
        return int(found["inference_stats"]["fail"]["count"])

    before, body = failed(), json.dumps({"COUNT": 100_000_000})
    head = "POST /v2/models/decoupled/generate_stream HTTP/1.1\r\nHost: x\r\n"
    with socket.create_connection(("127.0.0.1", served.server.ports["inference"])) as leaving:
        leaving.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert b" 200 OK" in leaving.recv(100)
    served.server.until(lambda: failed() > before, "the request still runs")
    assert ask(served, "/v2/models/decoupled/generate", {"COUNT": 1}).json()["NUMBER"] == 0


def test_repository(client: Any, served: Curling) -> None:
    def states() -> dict[str, str]:
        index = client.get_model_repository_index()
        return {f"{e['name']} {e.get('version', '')}".strip(): e["state"] for e in index}

    assert states()["raw 1.0"] == "READY"
    client.unload_model("raw")
    assert states()["raw"] == "UNAVAILABLE"
    assert not client.is_model_ready("raw")
    client.load_model("raw")
    assert client.is_model_ready("raw")
    batching = {"preferred_batch_size": [2]}
    config = client.get_model_config("add") | {"max_batch_size": 2, "dynamic_batching": batching}
    client.load_model("add", config=json.dumps(config))
    with pytest.raises(InferenceServerException, match="1 to 2"):
        client.infer("add", [given(name, numpy.ones((3, 1), "float32")) for name in "AB"])
    client.load_model("add")
    for body, text in (
        ({"parameters": {"file:../../evil": "eA=="}}, "without .."),
        ({"parameters": {"file:/etc/x": "eA=="}}, "without .."),
        ({"parameters": {"config": "{"}}, "no JSON"),
        ({"parameters": {"else": 1}}, "unknown"),
    ):
        answer = ask(served, "/v2/repository/models/add/load", body)
        assert (answer.status, text in answer.json()["error"]) == (400, True)
    sent = {"parameters": {"config": "{}", "file:1/model.py": "eA=="}}
    answer = ask(served, "/v2/repository/models/add/load", sent)
    assert (answer.status, "allow_model_uploads" in answer.json()["error"]) == (405, True)
    assert ask(served, "/v2/repository/models/none/load", "").status == 404
    assert ask(served, "/v2/repository/models/none/unload", "").status == 200


def test_shared_memory(client: Any, served: Curling) -> None:
    array = numpy.arange(3, dtype="float32").reshape(1, 3)
    before = set(os.listdir("/dev/shm"))
    name = f"/marserve-test-{os.getpid()}"
    region = shm.create_shared_memory_region("region", name, 64)
    try:
        shm.set_shared_memory_region(region, [array])
        client.register_system_shared_memory("region", name, 64)
        assert client.get_system_shared_memory_status("region")[0]["byte_size"] == 64
        made = triton.InferInput("x", [1, 3], "FP32")
        made.set_shared_memory("region", array.nbytes)
        asked = triton.InferRequestedOutput("x")
        asked.set_shared_memory("region", 12, offset=24)
        result = client.infer("declared", [made], outputs=[asked])
        assert result.get_output("x")["parameters"]["shared_memory_byte_size"] == 12
        told = shm.get_contents_as_numpy(region, "float32", [1, 3], 24)
        assert told.tolist() == array.tolist()
        for offset, size, text in ((60, 12, "not in shared memory"), (0, 8, "8 bytes of binary")):
            made = triton.InferInput("x", [1, 3], "FP32")
            made.set_shared_memory("region", size, offset=offset)
            with pytest.raises(InferenceServerException, match=text):
                client.infer("declared", [made])
        made.set_shared_memory("region", 12)
        asked.set_shared_memory("region", 4)
        with pytest.raises(InferenceServerException, match="its shared memory has 4"):
            client.infer("declared", [made], outputs=[asked])
        with pytest.raises(InferenceServerException, match="registered already"):
            client.register_system_shared_memory("region", name, 64)
        os.truncate(f"/dev/shm{name}", 0)  # a mapping would end the server now
        with pytest.raises(InferenceServerException, match="become shorter"):
            client.infer("declared", [made])
        client.unregister_system_shared_memory("region")
        assert client.get_system_shared_memory_status() == []
        for key in ("../etc/passwd", "/none-such", "a/b", ".."):
            body = {"key": key, "byte_size": 1}
            answer = ask(served, "/v2/systemsharedmemory/region/r/register", body)
            assert (answer.status, list(answer.json())) == (400, ["error"])
    finally:
        shm.destroy_shared_memory_region(region)
    assert not {each for each in set(os.listdir("/dev/shm")) - before if "marserve" in each}


def test_log_and_trace_settings(client: Any, served: Curling) -> None:
    assert client.get_log_settings()["log_info"] is True
    client.update_log_settings({"log_info": False})
    client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
    infer = [given("x", numpy.ones(1, "float32"))]
    client.infer("free", infer)
    assert "trace: model free" not in served.server.console
    client.update_log_settings({"log_info": True})
    assert client.get_trace_settings("free")["trace_level"] == ["TIMESTAMPS"]
    client.infer("free", infer)
    served.server.wait_for("trace: model free 1.0")
    found = client.update_trace_settings(settings={"trace_level": None, "trace_rate": None})
    assert (found["trace_level"], found["trace_rate"]) == (["OFF"], "1000")
    for path, body in (
        ("/v2/logging", {"log_infos": True}),
        ("/v2/logging", {"log_file": "/tmp/x"}),
        ("/v2/logging", {"log_verbose_level": -1}),
        ("/v2/trace/setting", {"trace_rate": "0"}),
        ("/v2/trace/setting", {"trace_file": "/tmp/x"}),
    ):
        answer = ask(served, path, body)
        assert (answer.status, list(answer.json())) == (400, ["error"])


def test_the_asynchronous_client(served: Curling) -> None:
    async def talk() -> list[Any]:
        port = served.server.ports["inference"]
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{port}") as client:
            array = numpy.ones((2, 3), "float32")
            one = triton_aio.InferInput("x", [2, 3], "FP32")
            one.set_data_from_numpy(array)
            results = await asyncio.gather(*(client.infer("declared", [one]) for _ in range(4)))
            assert await client.is_model_ready("declared")
            return [each.as_numpy("x").tolist() for each in results]

    assert asyncio.run(talk()) == [[[1.0] * 3] * 2] * 4


def test_kserve_v1(served: Curling) -> None:
    assert "texts" in served.curl("/v1/models").json()["models"]
    assert served.curl("/v1/models/texts").json() == {"name": "texts", "ready": True}
    body = {"instances": [{"text": "one"}, "two"]}
    answer = ask(served, "/v1/models/texts:predict", body)
    assert answer.status == 200, answer.body
    assert len(answer.json()["predictions"]) == 2
    explained = ask(served, "/v1/models/texts:explain", body).json()["explanations"]
    assert [set(each) >= {"words", "importances"} for each in explained] == [True, True]
    alone = served.curl("/predictions/texts", "-H", "Content-Type: text/plain", "-d", "two")
    assert answer.json()["predictions"][1] == alone.text


def test_an_answer_in_pieces_of_a_lone_row_or_handler(served: Curling) -> None:
    body = {"inputs": [tensor("x", "INT8", [1], [1])]}
    answer = ask(served, "/v2/models/pieces/infer", body)

    assert answer.status >= 400
    assert list(answer.json()) == ["error"]
