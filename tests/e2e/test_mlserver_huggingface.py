"""Hugging Face models by MLServer's configuration alone, in a real server with tiny models."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import media_models, tiny_models
from tests.e2e.running import Answer, Running, running

TEXT, OTHER = "the movie was good", "what a bad film this is in new york"


def settings(folder: Path, task: str, extra: dict[str, Any] | None = None, **more: Any) -> None:
    parameters = {"extra": {"task": task, "pretrained_model": "./model", **(extra or {})}}
    content = {
        "name": folder.name,
        "implementation": "mlserver_huggingface.HuggingFaceRuntime",
        "parameters": parameters,
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model-settings.json").write_text(json.dumps(content))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    environment = {"OMP_NUM_THREADS": "1"}
    for server in running(tmp_path_factory.mktemp("hf"), models=None, environment=environment):
        store = server.store / "models"
        settings(store / "feeling", "text-classification", max_batch_size=8, max_batch_time=0.3)
        tiny_models.build("bert", "sequence_classification", store / "feeling" / "model")
        settings(store / "story", "text-generation")
        tiny_models.build("gpt2", "text_generation", store / "story" / "model")
        settings(store / "picture", "image-classification")
        media_models.save("vit", store / "picture" / "model")
        settings(store / "absent", "text-classification", {"pretrained_model": "org/some-model"})
        server.start()
        for name in ("feeling", "story", "picture"):
            done = register(server, name)
            assert done.status == 200, done.text
        yield server


def register(server: Running, name: str) -> Answer:
    query = f"url=models/{name}&initial_workers=1&synchronous=true"
    return server.manage("POST", f"/models?{query}", timeout_s=150)


def tensor(name: str, data: list[Any], datatype: str = "BYTES", content_type: str = "") -> Any:
    given = {"parameters": {"content_type": content_type}} if content_type else {}
    return {"name": name, "datatype": datatype, "shape": [len(data)], "data": data, **given}


def infer(server: Running, model: str, *inputs: Any) -> Answer:
    return server.ask("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": list(inputs)}))


def results(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer.text
    [output] = answer.json["outputs"]
    assert output["name"] == "output"
    assert output["datatype"] == "BYTES"
    assert output["parameters"] == {"content_type": "hg_jsonlist"}
    assert output["shape"] == [len(output["data"]), 1]
    return [json.loads(each) for each in output["data"]]


def pipeline(server: Running, task: str, model: str) -> Any:
    import transformers

    made: Any = transformers.pipeline
    return made(task, model=str(server.store / "models" / model / "model"), device="cpu")


def close(found: Any, wanted: Any) -> bool:
    """Whether answers are the same but for the last digits of numbers."""
    if isinstance(wanted, float):
        return bool(abs(found - wanted) < 1e-5)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(close, found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(close(found[k], wanted[k]) for k in wanted)
    return bool(found == wanted)


def test_texts_come_as_arguments_as_a_list_and_by_name(server: Running) -> None:
    own = pipeline(server, "text-classification", "feeling")

    assert close(results(infer(server, "feeling", tensor("args", [TEXT]))), own(TEXT))
    both = own([TEXT, OTHER])
    assert close(results(infer(server, "feeling", tensor("array_inputs", [TEXT, OTHER]))), both)
    assert close(results(infer(server, "feeling", tensor("inputs", [TEXT, OTHER]))), both)
    two = tensor("top_k", [2], "INT32", "raw")
    asked = infer(server, "feeling", tensor("args", [TEXT]), two)
    assert close(results(asked), own(TEXT, top_k=2))


def test_requests_that_run_together_have_the_answers_they_have_alone(server: Running) -> None:
    requests = [
        [tensor("args", [TEXT])],
        [tensor("array_inputs", [TEXT, OTHER])],
        [tensor("unknown", ["a"])],
        [tensor("inputs", [OTHER])],
        [tensor("args", [OTHER]), tensor("top_k", [2], "INT32", "raw")],
        [tensor("args", [OTHER])],
    ]
    alone = [infer(server, "feeling", *request) for request in requests]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda request: infer(server, "feeling", *request), requests))

    assert [each.status for each in together] == [200, 200, 400, 200, 200, 200]
    assert "missing 1 required positional argument" in together.pop(2).json["error"]
    alone.pop(2)
    assert all(close(results(a), results(b)) for a, b in zip(together, alone, strict=True))


def test_generation_has_its_parameters(server: Running) -> None:
    own = pipeline(server, "text-generation", "story")
    length = tensor("max_new_tokens", [5], "INT32", "raw")
    greedy = tensor("do_sample", [False], "BOOL", "raw")
    answer = infer(server, "story", tensor("text_inputs", [TEXT, OTHER]), length, greedy)

    assert results(answer) == own([TEXT, OTHER], max_new_tokens=5, do_sample=False)


def test_images_come_in_base64_and_never_from_an_address(server: Running) -> None:
    image = base64.b64encode(media_models.image()).decode()
    asked = tensor("images", [image], content_type="pillow_image")
    found = results(infer(server, "picture", asked))
    raw = server.predict("picture", media_models.image(), headers={"Content-Type": "image/png"})

    assert {each["label"] for each in found[0]} <= {"cat", "dog", "bird", "fish", "horse", "frog"}
    assert close(raw.json, found[0])
    for address in ("http://127.0.0.1:1/a.png", "/etc/hostname"):
        refused = infer(server, "picture", tensor("images", [address]))
        assert refused.status == 400
        assert "neither addresses nor paths are read" in refused.json["error"]


def test_torchserve_s_api_takes_plain_bodies(server: Running) -> None:
    text = server.predict("feeling", TEXT)
    named = server.ask(
        "POST",
        "/predictions/feeling",
        json.dumps({"inputs": TEXT, "top_k": 2}),
        {"Content-Type": "application/json"},
    )

    assert close(text.json, results(infer(server, "feeling", tensor("args", [TEXT]))))
    assert [len(text.json), len(named.json)] == [1, 2]


def test_a_name_of_a_hub_is_refused_with_the_remedy(server: Running) -> None:
    answer = register(server, "absent")

    assert answer.status == 500
    assert "$.parameters.extra.pretrained_model: 'org/some-model'" in answer.message
    assert "save it with save_pretrained beside the file" in answer.message


def test_triton_s_client_is_answered(server: Running) -> None:
    import numpy as np
    import tritonclient.http as client

    with client.InferenceServerClient(f"127.0.0.1:{server.ports['inference']}") as connection:
        given = client.InferInput("args", [1], "BYTES")
        given.set_data_from_numpy(np.array([TEXT.encode()], dtype=object))
        found = connection.infer("feeling", [given])
        output: Any = found.as_numpy("output")
        [text] = output.ravel()
    expected = results(infer(server, "feeling", tensor("args", [TEXT])))
    assert close(json.loads(text), expected[0])
