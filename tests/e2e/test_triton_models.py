"""A Triton repository beside archives: Python models, calls between models, ensembles, control."""

from __future__ import annotations

import json
import queue
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as client
from tests.e2e.running import SERVICES, Running, running
from tritonclient.utils import InferenceServerException

ONES = np.ones((2, 3), np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("triton")
    properties = "default_workers_per_model=1\nallow_model_uploads=true"
    for server in running(root, properties=properties):
        shutil.copytree(SERVICES / "triton", server.store / "repository")
        broken = server.store / "repository" / "broken"
        broken.mkdir()
        (broken / "config.pbtxt").write_text('backend: "python"\nmax_batch_sise: 3\n')
        server.pack("doubling", "doubling")
        yield server.start()


@pytest.fixture(scope="module")
def triton(server: Running) -> Iterator[client.InferenceServerClient]:
    address = f"127.0.0.1:{server.ports['inference']}"
    with client.InferenceServerClient(address, concurrency=8) as connected:
        yield connected


def tensor(name: str, values: Any) -> client.InferInput:
    array = np.asarray(values)
    words = {"float32": "FP32", "int32": "INT32", "int64": "INT64", "object": "BYTES"}
    made = client.InferInput(name, list(array.shape), words[array.dtype.name])
    made.set_data_from_numpy(array)
    return made


def add(triton: client.InferenceServerClient, a: Any, b: Any = ONES, **more: Any) -> Any:
    return triton.infer("add", [tensor("A", a), tensor("B", b)], **more)


def texts(*values: bytes) -> Any:
    return np.array(values, dtype=object)


def refusal(ask: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        ask()
    return str(caught.value.status()), str(caught.value.message())


def test_the_highest_version_answers_where_none_is_named(
    triton: client.InferenceServerClient,
) -> None:
    answers = {version: add(triton, ONES, model_version=version) for version in ("", "1", "2")}

    assert {"": "2", "1": "1", "2": "2"} == {
        version: answer.get_response()["model_version"] for version, answer in answers.items()
    }
    assert np.all(answers["2"].as_numpy("SUM") == 4)
    assert np.all(answers["1"].as_numpy("SUM") == 2)
    assert np.all(answers["1"].as_numpy("DIFFERENCE") == 0)


def test_the_metadata_is_that_of_the_configuration(triton: client.InferenceServerClient) -> None:
    metadata = triton.get_model_metadata("add")

    assert ["1", "2"] == sorted(metadata["versions"])
    expected = [{"name": name, "datatype": "FP32", "shape": [-1, -1]} for name in ("A", "B")]
    assert expected == [
        {key: each[key] for key in ("name", "datatype", "shape")} for each in metadata["inputs"]
    ]
    config = triton.get_model_config("add")
    assert (8, "python") == (config["max_batch_size"], config["backend"])
    assert config["dynamic_batching"]["preferred_batch_size"] == [4, 8]


def test_an_error_of_one_request_is_not_one_of_its_batch(
    triton: client.InferenceServerClient,
) -> None:
    def result(asked: Any) -> Any:
        try:
            return asked.get_result().as_numpy("SUM")[0, 0]
        except InferenceServerException as error:
            return f"{error.status()} {error.message()}"

    asked = [
        triton.async_infer("add", [tensor("A", ONES * value), tensor("B", ONES)])
        for value in (1, -1, 2, -2, 3, -1, 4, 5)
    ]
    found = [result(each) for each in asked]

    assert [4, 6, 8, 10, 12] == [each for each in found if not isinstance(each, str)]
    assert ["400 A may not be -1"] * 2 == [found[1], found[5]]
    assert str(found[3]).startswith("500 ")
    assert "ValueError: A may not be -2" in str(found[3])
    assert "model.py" not in str(found[3])


def test_a_request_is_checked_against_the_configuration(
    triton: client.InferenceServerClient,
) -> None:
    nine = np.ones((9, 3), np.float32)
    refusals = {
        "missing": refusal(lambda: triton.infer("add", [tensor("A", ONES)])),
        "unknown": refusal(
            lambda: triton.infer("add", [tensor("A", ONES), tensor("C", ONES), tensor("B", ONES)])
        ),
        "datatype": refusal(lambda: add(triton, ONES.astype(np.int32))),
        "rows": refusal(lambda: add(triton, nine, nine)),
    }

    assert {"400"} == {status for status, _ in refusals.values()}
    assert "B" in refusals["missing"][1]
    assert "C" in refusals["unknown"][1]
    assert "A" in refusals["datatype"][1]
    assert "8" in refusals["rows"][1]


def test_what_a_model_sees_of_a_request(triton: client.InferenceServerClient) -> None:
    answer = triton.infer(
        "mixed",
        [tensor("TEXT", texts(b"ab", b"cd")), tensor("TIMES", np.array([2], np.int32))],
        request_id="77",
        parameters={"threshold": 3},
        outputs=[client.InferRequestedOutput("UPPER"), client.InferRequestedOutput("SEEN")],
    )

    assert [b"ABAB", b"CDCD"] == answer.as_numpy("UPPER").tolist()
    assert answer.get_response()["id"] == "77"
    assert answer.as_numpy("CLASSES") is None
    assert {
        "id": "77",
        "outputs": ["SEEN", "UPPER"],
        "parameters": {"threshold": 3},
        "correlation": 0,
        "shape": [1, 1],
        "cancelled": False,
    } == json.loads(answer.as_numpy("SEEN")[0])


def test_an_optional_input_and_classes_with_labels(triton: client.InferenceServerClient) -> None:
    wanted = [client.InferRequestedOutput("CLASSES", class_count=2)]

    answer = triton.infer("mixed", [tensor("TEXT", texts(b"x"))], outputs=wanted)

    assert [b"0.700000:1:dog", b"0.200000:2:owl"] == answer.as_numpy("CLASSES").tolist()


def test_a_model_asks_other_models(triton: client.InferenceServerClient) -> None:
    def ask(name: bytes) -> Any:
        inputs = [tensor("A", ONES), tensor("B", ONES), tensor("MODEL", texts(name))]
        return triton.infer("bls", inputs)

    assert np.all(ask(b"add").as_numpy("OUT") == 16)
    assert np.all(ask(b"ready?").as_numpy("OUT") == 16)
    assert np.all(ask(b"unload and load").as_numpy("OUT") == 16)
    status, text = refusal(lambda: ask(b"nobody"))
    assert (status, "nobody" in text) == ("404", True)
    assert np.all(ask(b"add").as_numpy("OUT") == 16)


def test_a_model_completes_its_configuration(triton: client.InferenceServerClient) -> None:
    config = triton.get_model_config("completing")
    answer = triton.infer("completing", [tensor("X", np.ones((3, 2), np.int64))])

    assert (4, {"X"}) == (config["max_batch_size"], {each["name"] for each in config["input"]})
    assert [[2], [2], [2]] == answer.as_numpy("Y").tolist()


def test_an_ensemble_leads_tensors_through_its_steps(
    triton: client.InferenceServerClient,
) -> None:
    def ask(x: Any) -> Any:
        return triton.infer("ens_pipeline", [tensor("X", x), tensor("Y", ONES)])

    answer = ask(ONES * 3)
    assert np.all(answer.as_numpy("TOTAL") == (3 + 1 + 1) * 2)
    assert np.all(answer.as_numpy("GAP") == 2)
    assert triton.get_model_metadata("ens_pipeline")["platform"] == "ensemble"
    status, text = refusal(lambda: ask(-ONES))
    assert (status, text) == ("400", "in ensemble 'ens_pipeline', step 'add': A may not be -1")


def test_answers_are_kept_by_all_that_they_depend_on(triton: client.InferenceServerClient) -> None:
    def ask(value: int, **more: Any) -> int:
        answer = triton.infer("counter", [tensor("X", np.array([value], np.int32))], **more)
        return int(answer.as_numpy("CALLS")[0])

    given = triton.infer("counter", [tensor("X", np.array([7], np.int32))]).get_response()
    assert given["parameters"] == {"in_batch": 1, "kind": "count"}
    first = ask(1, request_id="a")
    assert ask(1, request_id="b") == first
    assert ask(2) == first + 1
    assert ask(1, parameters={"other": 1}) == first + 2
    assert ask(1) == first


def test_a_decoupled_model_streams(server: Running) -> None:
    answer = server.ask("POST", "/v2/models/decoupled/generate_stream", '{"COUNT": [3]}')

    events = [json.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:")]
    assert [0, 1, 2] == [event["NUMBER"] for event in events]


def test_a_decoupled_model_answers_a_stream_of_grpc(server: Running) -> None:
    came: queue.Queue[Any] = queue.Queue()
    inputs = []
    for name, value in (("COUNT", 3), ("FAIL_AT", 2)):
        inputs.append(grpc_client.InferInput(name, [1], "INT32"))
        inputs[-1].set_data_from_numpy(np.array([value], np.int32))
    address = f"127.0.0.1:{server.grpc_ports['inference']}"
    with grpc_client.InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: came.put(error or result))
        client.async_stream_infer("decoupled", inputs[:1], enable_empty_final_response=True)
        whole = [came.get(timeout=60) for _ in range(4)]
        client.async_stream_infer("decoupled", inputs)
        broken = [came.get(timeout=60) for _ in range(3)]
        client.stop_stream()

    assert [0, 1, 2] == [int(each.as_numpy("NUMBER")[0]) for each in whole[:3]]
    assert whole[3].get_response().parameters["triton_final_response"].bool_param
    assert [0, 1] == [int(each.as_numpy("NUMBER")[0]) for each in broken[:2]]
    assert "as asked" in str(broken[2])


def test_an_archive_beside_the_repository_and_a_model_that_is_wrong(
    server: Running, triton: client.InferenceServerClient
) -> None:
    assert triton.is_model_ready("doubling")
    text = "config.pbtxt: line 2: max_batch_sise: unknown key (did you mean max_batch_size?)"
    assert text in server.console


def test_models_are_unloaded_with_their_dependents_and_loaded_again(
    triton: client.InferenceServerClient,
) -> None:
    triton.unload_model("ens_pipeline", unload_dependents=True)
    assert not triton.is_model_ready("ens_pipeline")
    assert not triton.is_model_ready("add")

    triton.load_model("ens_pipeline")  # its step comes with it
    assert triton.is_model_ready("ens_pipeline")
    assert add(triton, ONES).get_response()["model_version"] == "2"

    changed = {**triton.get_model_config("add"), "parameters": {"offset": {"string_value": "10"}}}
    triton.load_model("add", config=json.dumps(changed))
    assert np.all(add(triton, ONES, model_version="1").as_numpy("SUM") == 12)
    triton.load_model("add")
    assert np.all(add(triton, ONES, model_version="1").as_numpy("SUM") == 2)

    status, text = refusal(lambda: triton.load_model("broken"))
    assert (status, "max_batch_sise" in text) == ("400", True)


def test_a_model_that_is_loaded_anew_answers_all_the_while(
    server: Running, triton: client.InferenceServerClient
) -> None:
    body = json.dumps(
        {
            "inputs": [
                {"name": name, "datatype": "FP32", "shape": [1, 2], "data": [1, 1]} for name in "AB"
            ]
        }
    )
    pids = server.worker_pids("add")
    over, statuses = threading.Event(), []

    def ask() -> None:
        while not over.is_set():
            statuses.append(server.ask("POST", "/v2/models/add/infer", body).status)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    try:
        for _ in range(2):
            triton.load_model("add")
    finally:
        over.set()
        for thread in asking:
            thread.join()

    assert set(statuses) == {200}
    assert not {*pids} & {*server.worker_pids("add")}

    config = triton.get_model_config("add")
    config["output"] = [{**each, "dims": ["3"]} for each in config["output"]]
    triton.load_model("add", config=json.dumps(config))
    assert [-1, 3] == triton.get_model_metadata("add")["outputs"][0]["shape"]
    bad = {**triton.get_model_config("add"), "backend": "python", "default_model_filename": "no.py"}
    status, text = refusal(lambda: triton.load_model("add", config=json.dumps(bad)))
    assert (status, "no.py" in text) == ("400", True)
    triton.load_model("add")
    assert np.all(add(triton, ONES, model_version="1").as_numpy("SUM") == 2)


def test_a_model_whose_new_worker_fails_stays_as_it_was(
    server: Running, triton: client.InferenceServerClient
) -> None:
    pids = server.worker_pids("add")
    config = triton.get_model_config("add")
    wrong = {**config, "parameters": {"offset": {"string_value": "no number"}}}
    status, text = refusal(lambda: triton.load_model("add", config=json.dumps(wrong)))

    assert (status, "no number" in text) == ("500", True)
    assert pids == server.worker_pids("add")
    assert np.all(add(triton, ONES, model_version="1").as_numpy("SUM") == 2)


def test_a_model_whose_files_come_with_the_call(
    server: Running, triton: client.InferenceServerClient
) -> None:
    folder = SERVICES / "triton" / "add"
    program, offset = (folder / "1" / "model.py").read_bytes(), {"string_value": "100"}
    config = {**triton.get_model_config("add"), "name": "sent", "parameters": {"offset": offset}}
    files = {"file:3/model.py": program, "file:5/model.py": program}
    triton.load_model("sent", config=json.dumps(config), files=files)

    def ask(version: str = "") -> Any:
        given = [tensor("A", ONES), tensor("B", ONES)]
        return triton.infer("sent", given, model_version=version)

    assert ["3", "5"] == sorted(triton.get_model_metadata("sent")["versions"])
    assert np.all(ask().as_numpy("SUM") == 110)
    for given, sent in (
        (config, {"file:5/model.onnx": b""}),
        (config, {"file:5": b"", "file:5/model.py": b""}),
        ({**config, "max_batch_sise": 1}, files),
    ):
        asking = partial(triton.load_model, "sent", config=json.dumps(given), files=sent)
        assert refusal(asking)[0] == "400"
    assert np.all(ask("3").as_numpy("SUM") == 106)  # what was loaded before stays
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc_ports['inference']}") as asked:
        asked.load_model("sent", config=json.dumps(config), files={"file:7/model.py": program})
    assert ask().get_response()["model_version"] == "7"
    triton.unload_model("sent")
    assert not triton.is_model_ready("sent")
    assert not [*(server.root / "tmp").glob("**/sent")]


def test_the_mode_none(tmp_path: Path) -> None:
    for server in running(tmp_path, properties="model_control_mode=none", models=None):
        shutil.copytree(SERVICES / "triton" / "mixed", server.store / "mixed")
        server.start()
        assert _versions(server, "mixed") == ["1"]
        for call in ("load", "unload"):
            answer = server.ask("POST", f"/v2/repository/models/mixed/{call}", "{}")
            assert answer.status == 503
            assert "model_control_mode is none" in answer.json["error"]
        assert _versions(server, "mixed") == ["1"]


def test_the_mode_poll(tmp_path: Path) -> None:
    properties = "model_control_mode=poll\nrepository_poll_secs=1"
    for server in running(tmp_path, properties=properties, models=None):
        folder = server.store / "mixed"
        shutil.copytree(SERVICES / "triton" / "mixed", folder)
        server.start()
        assert "mixed begins" in server.console
        answer = server.ask("POST", "/v2/repository/models/mixed/unload", "{}")
        assert answer.status == 503
        assert "model_control_mode is poll" in answer.json["error"]

        # Written aside and moved in: what is seen half-written would be loaded so.
        shutil.copytree(folder / "1", server.root / "2")
        (server.root / "2").rename(folder / "2")
        _await_versions(server, ["2"])
        shutil.rmtree(folder)
        _await_versions(server, [])
        server.stop()
        assert "mixed ends" in server.console


def _await_versions(server: Running, expected: list[str]) -> None:
    server.until(lambda: _versions(server, "mixed") == expected, f"versions are not {expected}")


def _versions(server: Running, name: str) -> list[str]:
    answer = server.ask("GET", f"/v2/models/{name}")
    return answer.json["versions"] if answer.status == 200 else []
