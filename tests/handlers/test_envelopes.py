from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.context import Context
from marserve.handlers.envelopes import load_envelope
from marserve.handlers.errors import RequestError


class Recorder:
    """A handler that keeps what it got and answers with what it was told, else with the same."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.rows: list[Any] = []

    def __call__(self, rows: list[Any], context: Any) -> list[Any]:
        self.rows = rows
        return rows if self.answer is None else list(self.answer)


def context_of(*headers: dict[str, str]) -> Context:
    manifest = {"model": {"modelName": "m", "modelVersion": "1.5"}}
    context = Context("m", "/nowhere", manifest)
    context.begin([f"id-{i}" for i in range(len(headers))], list(headers))
    return context


def test_body_takes_the_dict_off() -> None:
    handler = Recorder()

    results = load_envelope("body", handler)([{"data": 1}, {"body": "x"}], context_of({}, {}))

    assert [1, "x"] == handler.rows == results


def test_json_lays_all_instances_in_one_batch_and_cuts_the_results() -> None:
    handler = Recorder(["ok"])
    encoded = {"b64": base64.b64encode(b"\x00\xff").decode()}
    rows = [
        {"body": {"instances": [1, encoded, {"b64": "x", "other": 1}]}},
        {"data": bytearray(b'{"instances": []}')},
        {"body": '{"instances": ["a"]}'},
    ]

    results = load_envelope("json", Recorder([10, 20, 30, 40]))(rows, context_of({}, {}, {}))
    load_envelope("json", handler)([rows[0]], context_of({}))

    assert [1, b"\x00\xff", {"b64": "x", "other": 1}] == handler.rows
    assert [
        {"predictions": [10, 20, 30]},
        {"predictions": []},
        {"predictions": [40]},
    ] == [json.loads(text) for text in results]


def test_kserve_answers_predictions_or_explanations() -> None:
    kserve = load_envelope("kserve", Recorder())
    row = {"body": {"instances": [{"data": 1}, {"data": 2}]}}

    predictions = kserve([row, row], context_of({}, {}))
    explanations = kserve([row], context_of({"explain": "True"}))

    assert [{"predictions": [{"data": 1}, {"data": 2}]}] * 2 == predictions
    assert [{"explanations": [{"data": 1}, {"data": 2}]}] == explanations


def test_a_lone_request_gets_all_results() -> None:
    kserve = load_envelope("kserve", Recorder([1, 2, 3]))

    assert [{"predictions": [1, 2, 3]}] == kserve([{"body": {"instances": [0]}}], context_of({}))


@pytest.mark.parametrize("name", ["json", "kserve"])
def test_a_refused_item_refuses_its_request_alone(name: str) -> None:
    refusal = RequestError("no such word")
    rows = [{"body": {"instances": [0]}}, {"body": {"instances": [1, 2]}}]

    results = load_envelope(name, Recorder([1, 2, refusal]))(rows, context_of({}, {}))

    assert refusal is results[1]
    assert "predictions" in results[0]


def test_results_that_nobody_can_be_told_to_own_are_an_error() -> None:
    rows = [{"body": {"instances": [0]}}] * 2

    with pytest.raises(ValueError, match="3 results for 2 items"):
        load_envelope("json", Recorder([1, 2, 3]))(rows, context_of({}, {}))


def test_kservev2_reshapes_inputs_and_flattens_outputs() -> None:
    handler = Recorder([[[1, 2], [3, 4]], torch.tensor([0.5]), "text", ["a", "b"], {"x": 1}, True])
    context = context_of({})
    body = {
        "id": "mine",
        "inputs": [
            {"name": "in", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]},
            {"name": "txt", "shape": [1], "datatype": "BYTES", "data": ["hello"]},
        ],
    }

    [answer] = load_envelope("kservev2", handler)([{"body": body}], context)

    assert [[[1, 2], [3, 4]], "hello"] == [row["data"] for row in handler.rows]
    assert [("in", "FP32"), ("txt", "BYTES")] == [
        (row["name"], row["datatype"]) for row in handler.rows
    ]
    assert ["in", "txt"] == context.input_names  # type: ignore[attr-defined]
    assert ("mine", "m", "1.5") == (answer["id"], answer["model_name"], answer["model_version"])
    assert [
        ("output-0", "INT64", [1, 2, 3, 4], [2, 2]),
        ("output-1", "FP32", [0.5], [1]),
        ("output-2", "BYTES", ["text"], [1]),
        ("output-3", "BYTES", ["a", "b"], [2]),
        ("output-4", "BYTES", ['{"x": 1}'], [1]),
        ("output-5", "BOOL", [True], [1]),
    ] == [(o["name"], o["datatype"], o["data"], o["shape"]) for o in answer["outputs"]]


def test_kservev2_answers_each_request_of_a_batch() -> None:
    rows = [
        {"body": {"inputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [i, i]}]}}
        for i in range(2)
    ]

    answers = load_envelope("kservev2", Recorder([[0, 0], [1, 1]]))(rows, context_of({}, {}))

    assert ["id-0", "id-1"] == [answer["id"] for answer in answers]
    assert [[0, 0], [1, 1]] == [answer["outputs"][0]["data"] for answer in answers]
    assert ["x", "x"] == [answer["outputs"][0]["name"] for answer in answers]


def test_kserve_decodes_nothing_and_its_images_are_read_all_the_same() -> None:
    handler = Recorder()
    load_envelope("kserve", handler)([{"body": {"instances": [{"b64": "QUJD"}]}}], context_of({}))

    assert [{"b64": "QUJD"}] == handler.rows


@pytest.mark.parametrize(
    ("envelope", "body", "reason"),
    [
        ("json", b"{", "is no JSON"),
        ("json", None, "expected a JSON object, got NoneType"),
        ("json", [1], "expected a JSON object, got list"),
        ("json", {"inputs": []}, 'has no "instances"'),
        ("json", {"instances": 5}, 'has no "instances"'),
        ("json", {"instances": [{"b64": "***"}]}, "holds no base64"),
        ("json", {"instances": [{"b64": 5}]}, "holds no base64"),
        ("kserve", {}, 'has no "instances"'),
        ("kservev2", {"inputs": []}, 'has no "inputs"'),
        ("kservev2", {"inputs": [5]}, 'has no "name"'),
        ("kservev2", {"inputs": [{"name": "x"}]}, 'has no "data"'),
        (
            "kservev2",
            {"inputs": [{"name": "x", "shape": [3], "data": [1, 2]}]},
            "data do not fit the shape",
        ),
        (
            "kservev2",
            {"inputs": [{"name": "x", "shape": "no", "data": [1, 2]}]},
            "data do not fit the shape",
        ),
    ],
)
def test_a_malformed_request_is_told_what_would_be_right(
    envelope: str, body: Any, reason: str
) -> None:
    with pytest.raises(RequestError, match=reason):
        load_envelope(envelope, Recorder())([{"body": body}], context_of({}))


@pytest.mark.parametrize("name", ["body", "json", "kserve", "kservev2"])
def test_a_description_goes_past_every_envelope(name: str) -> None:
    handler = Recorder([{"described": True}])

    results = load_envelope(name, handler)([{}], context_of({"describe": "True"}))

    assert [{"described": True}] == results
    assert [{}] == handler.rows


def test_an_unknown_envelope_is_named() -> None:
    with pytest.raises(HandlerLoadError, match=r"there is no 'soap'; there are: base, body, json"):
        load_envelope("soap", Recorder())


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_every_request_gets_its_own_results(lengths: list[int]) -> None:
    rows = [
        {"body": {"instances": [f"{i}-{j}" for j in range(length)]}}
        for i, length in enumerate(lengths)
    ]

    results = load_envelope("json", Recorder())(rows, context_of(*({} for _ in lengths)))

    assert [row["body"]["instances"] for row in rows] == [
        json.loads(text)["predictions"] for text in results
    ]
