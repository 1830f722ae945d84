"""Runtimes written for MLServer, served unmodified from their folders by a real server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.running import Answer, Running, running

FOLDERS = Path(__file__).resolve().parents[1] / "services" / "mlserver"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for server in running(tmp_path_factory.mktemp("mlserver")):
        shutil.copytree(FOLDERS, server.store / "runtimes")
        doubling = server.store / "runtimes" / "doubling"
        shutil.copytree(doubling, server.store / "doubling-v2")
        settings = server.store / "doubling-v2" / "model-settings.json"
        changed = json.loads(settings.read_text())
        changed["parameters"] = {"version": "v0.2", "extra": {"factor": 3}}
        settings.write_text(json.dumps(changed))
        server.pack("echo", "echo")
        write_triton_model(server.store / "adding")
        yield server.start()


def write_triton_model(folder: Path) -> None:
    """A model of a Triton repository, to stand beside the others."""
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        'backend: "python"\n'
        'input [ { name: "a" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        'output [ { name: "b" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
    )
    (folder / "1" / "model.py").write_text(
        "import triton_python_backend_utils as pb_utils\n\n\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        return [self.answer(each) for each in requests]\n\n"
        "    def answer(self, request):\n"
        "        array = pb_utils.get_input_tensor_by_name(request, 'a').as_numpy()\n"
        "        return pb_utils.InferenceResponse([pb_utils.Tensor('b', array + 1)])\n"
    )


def tensor(name: str, datatype: str, data: list[Any], shape: list[int], **more: Any) -> Any:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data, **more}


def infer(server: Running, model: str, *inputs: Any, **more: Any) -> Answer:
    body = json.dumps({"inputs": list(inputs), **more})
    return server.ask("POST", f"/v2/models/{model}/infer", body)


def outputs(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.text
    return {each["name"]: each for each in answer.json["outputs"]}


def test_versions_come_from_several_folders_of_one_name(server: Running) -> None:
    asked = tensor("a", "FP32", [1, 2, 3, 4], [2, 2])

    def of(version: str) -> Any:
        answer = infer(server, f"doubling/versions/{version}", asked, id="7")
        assert answer.json["id"] == "7"
        assert answer.json["model_version"] == version
        return outputs(answer)["a"]["data"]

    assert of("v0.1") == [2, 4, 6, 8]
    assert of("v0.2") == [3, 6, 9, 12]
    assert server.ask("GET", "/v2/models/doubling").json["versions"] == ["v0.1", "v0.2"]


def test_archives_and_folders_of_both_other_servers_are_in_one_store(server: Running) -> None:
    assert server.predict("echo", "hello").status == 200
    assert outputs(infer(server, "adding", tensor("a", "FP32", [1], [1])))["b"]["data"] == [2]
    names = {m["modelName"] for m in server.manage("GET", "/models?limit=20").json["models"]}
    assert names >= {"echo", "doubling", "codecs", "rows", "streaming", "waiting"}


def test_one_bad_folder_stops_nothing_and_is_named(server: Running) -> None:
    answer = infer(server, "failing", tensor("a", "FP32", [1], [1]))

    assert answer.status == 503
    assert "model-settings.json: $.implementation: 'failing.Nothing'" in answer.json["error"]
    assert "failing has no Nothing" in answer.json["error"]


def test_inputs_are_read_and_answers_written_as_type_hints_say(server: Running) -> None:
    numbers = tensor("numbers", "FP32", [1, 2, 3, 4], [2, 2])
    names = tensor("names", "BYTES", ["one", "two"], [2])
    found = outputs(infer(server, "codecs", numbers, names))

    assert found["output-0"]["data"] == [71, 72, 73, 74]
    assert found["output-0"]["parameters"] == {"content_type": "np"}
    assert found["output-1"]["data"] == ["ONE", "TWO"]
    assert found["output-1"]["shape"] == [2, 1]
    assert found["output-1"]["parameters"] == {"content_type": "str"}


def test_the_runtime_s_own_errors_have_their_own_status(server: Running) -> None:
    numbers = tensor("numbers", "FP32", [1, 2, 3, 4], [2, 2])
    short = infer(server, "codecs", numbers, tensor("names", "BYTES", ["one"], [1]))
    unknown = infer(server, "codecs", numbers, tensor("other", "BYTES", ["one"], [1]))

    assert (short.status, short.json) == (400, {"error": "a name for each row, please"})
    assert unknown.status == 400
    assert "'other' was not found" in unknown.json["error"]


def test_metrics_of_a_runtime_are_exposed(server: Running) -> None:
    numbers = tensor("numbers", "FP32", [1, 2, 3, 4], [2, 2])
    outputs(infer(server, "codecs", numbers, tensor("names", "BYTES", ["a", "b"], [2])))

    lines = server.ask("GET", "/metrics", kind="metrics").text.splitlines()
    counts = [line for line in lines if line.startswith("rows_seen_count")]
    assert len(counts) == 1
    assert 'ModelName="codecs"' in counts[0]


def test_requests_run_at_the_same_time(server: Running) -> None:
    asked = tensor("a", "INT32", [4], [1])
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: infer(server, "waiting", asked), range(4)))

    assert [outputs(answer)["met"]["data"] for answer in answers] == [[4]] * 4


def test_a_runtime_is_unloaded_when_it_is_served_no_more(server: Running) -> None:
    server.manage("DELETE", "/models/waiting")

    logs = server.root / "logs" / "model_log.log"
    server.until(lambda: "waiting is unloaded" in logs.read_text(), "no word of unload")


def test_joined_rows_are_cut_apart_and_errors_are_their_own(server: Running) -> None:
    requests = [
        [tensor("a", "FP32", [1, 2], [1, 2])],
        [tensor("a", "FP32", [3, 4, 5, 6], [2, 2])],
        [tensor("a", "FP32", [-1, 2], [1, 2])],
        [tensor("a", "FP32", [7, 8, 9], [1, 3])],
        [tensor("a", "FP32", [1, 1], [1, 2])],
    ]
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda r: infer(server, "rows", *r), requests))

    failed = answers.pop(2)
    found = [outputs(answer) for answer in answers]
    assert [each["sum"]["data"] for each in found] == [[3], [7, 11], [24], [2]]
    assert [each["sum"]["shape"] for each in found] == [[1, 1], [2, 1], [1, 1], [1, 1]]
    assert failed.status == 500
    assert failed.json["error"] == "Prediction failed: ValueError: there is a negative number"


def test_rows_are_counted_not_requests(server: Running) -> None:
    three = tensor("a", "FP32", [1, 2, 3], [3, 1])

    def waiting() -> int:
        found: int = server.describe("rows")["jobQueueStatus"]["pendingRequests"]
        return found

    with ThreadPoolExecutor(7) as pool:
        blocking = pool.submit(infer, server, "rows", tensor("a", "FP32", [1000], [1, 1]))
        server.until(lambda: server.ask("GET", "/v2/models/rows/ready").status, "no answer")
        asked = [pool.submit(infer, server, "rows", three) for _ in range(6)]
        server.until(lambda: waiting() >= 3, "the requests do not wait")
        (server.store / "runtimes" / "rows" / "gate").touch()
        together = [outputs(each.result())["together"]["data"][0] for each in asked]

    assert blocking.result().status == 200
    assert max(together) == 6  # two requests of three rows, and never more than max_batch_size


def test_only_requested_outputs_are_answered(server: Running) -> None:
    asked = tensor("a", "FP32", [1, 2], [1, 2])
    found = outputs(infer(server, "rows", asked, outputs=[{"name": "sum"}]))

    assert list(found) == ["sum"]


def test_answers_in_pieces_are_events(server: Running) -> None:
    body = json.dumps({"inputs": [tensor("text", "BYTES", ["one two three"], [1])]})
    answer = server.ask("POST", "/v2/models/streaming/generate_stream", body)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line[:6] == "data: "]

    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [event["outputs"][0]["data"] for event in events] == [["one"], ["two"], ["three"]]


def test_a_stream_that_breaks_says_so(server: Running) -> None:
    body = json.dumps({"inputs": [tensor("text", "BYTES", ["one stop two"], [1])]})
    answer = server.ask("POST", "/v2/models/streaming/generate_stream", body)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line[:6] == "data: "]

    assert events[0]["outputs"][0]["data"] == ["one"]
    assert "no more words" in events[1]["error"]


def test_the_same_runtime_answers_torchserve_s_api(server: Running) -> None:
    body = json.dumps({"inputs": [tensor("a", "FP32", [1, 2], [1, 2])]})
    answer = server.ask(
        "POST", "/predictions/doubling/v0.1", body, {"Content-Type": "application/json"}
    )

    assert answer.json["outputs"][0]["data"] == [2, 4]
    refused = server.predict("doubling", "hello")
    assert refused.status == 400
    assert "expected a V2 inference request" in refused.message
