from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from marserve.archiver.signature import Signature, TensorSpec
from marserve.frontend.errors import BadRequest
from marserve.frontend.v2 import messages, rows
from marserve.frontend.v2.checks import check_request
from marserve.frontend.v2.tensors import Tensor, elements, pack_bytes, to_json


def gathered(*results: Any) -> list[tuple[str, str, tuple[int, ...], list[Any]]]:
    bodies = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in results]
    return [(t.name, t.datatype, t.shape, to_json(t)) for t in rows.gather(bodies)]


def test_results_become_tensors() -> None:
    assert gathered({"label": "a", "score": 0.5}, {"label": "b", "score": 0.25}) == [
        ("label", "BYTES", (2,), ["a", "b"]),
        ("score", "FP32", (2,), [0.5, 0.25]),
    ]
    assert gathered(1, 2) == [("output", "INT64", (2,), [1, 2])]
    assert gathered(True, False) == [("output", "BOOL", (2,), [True, False])]
    assert gathered([1, 2.5], [3, 4]) == [("output", "FP32", (2, 2), [1.0, 2.5, 3.0, 4.0])]
    assert gathered(b"plain", b"text") == [("output", "BYTES", (2,), ["plain", "text"])]


@pytest.mark.parametrize(
    "results",
    [([1], [1, 2]), ({"a": 1}, {"b": 1}), ([[1], [2, 3]],), (2**70,), (None,), ([],), ([True],)],
)
def test_what_is_no_tensor_is_json(results: tuple[Any, ...]) -> None:
    [(name, datatype, shape, data)] = gathered(*results)

    assert (name, datatype, shape) == ("output", "BYTES", (len(results),))
    assert [json.loads(each) for each in data] == list(results)


def test_several_inputs_are_fields() -> None:
    inputs = [
        Tensor("question", "BYTES", (2, 1), pack_bytes([b"who?", b"what?"])),
        Tensor("top_k", "INT32", (2,), struct.pack("<2i", 3, 4)),
    ]
    read = [json.loads(bytes(bodies[0])) for _, bodies in rows.split(inputs, True)]

    assert read == [{"question": "who?", "top_k": 3}, {"question": "what?", "top_k": 4}]


def test_several_texts_may_be_bytes() -> None:
    inputs = [Tensor(name, "BYTES", (1,), pack_bytes([b"\xff"])) for name in "ab"]
    [(parts, bodies)] = rows.split(inputs, True)

    assert ([part.name for part in parts], bodies) == (["a", "b"], [b"\xff", b"\xff"])


def test_json_and_binary_inputs_mix() -> None:
    described: list[dict[str, Any]] = [
        {"name": "a", "datatype": "INT16", "shape": [2], "parameters": {"binary_data_size": 4}},
        {"name": "b", "datatype": "FP16", "shape": [1], "data": [0.5]},
        {"name": "c", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}},
    ]
    head = json.dumps({"inputs": described}).encode()
    body = head + struct.pack("<2h", 1, -2) + pack_bytes([b"\xff\x00"])
    a, b, c = messages.parse(body, str(len(head))).inputs

    assert (to_json(a), to_json(b), list(elements("c", c.raw))) == ([1, -2], [0.5], [b"\xff\x00"])
    with pytest.raises(BadRequest, match="1 bytes at the end of the body belong to no input"):
        messages.parse(body + b"x", str(len(head)))
    with pytest.raises(BadRequest, match=r"input 'c': .* 5 bytes are left"):
        messages.parse(body[:-1], str(len(head)))
    for wrong in ("00", "-1", "x", "99999", "²"):
        with pytest.raises(BadRequest, match="Inference-Header-Content-Length is"):
            messages.parse(body, wrong)


@pytest.mark.parametrize("raw", [b"\x01", b"\x05\x00\x00\x00abc", b"\xff\xff\xff\xff"])
def test_bytes_cut_off_are_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="input 'x'"):
        list(elements("x", raw))


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("y", "FP32", (1,), struct.pack("<f", float("nan"))),
        Tensor("y", "FP64", (1,), struct.pack("<d", float("inf"))),
        Tensor("y", "BYTES", (1,), pack_bytes([b"\xff"])),
    ],
)
def test_what_json_cannot_hold_names_the_way_out(tensor: Tensor) -> None:
    with pytest.raises(BadRequest, match=r"output 'y' .* \"binary_data\": true"):
        to_json(tensor)


def test_deeply_nested_data_are_refused() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    body = '{"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": ' + deep + "}]}"
    with pytest.raises(BadRequest, match="no V2 inference request"):
        messages.parse(body.encode(), None)


def test_null_is_absent() -> None:
    inputs = [{"name": "a", "datatype": "INT8", "shape": [1], "data": [1]}]
    body = {"inputs": inputs, "outputs": None, "parameters": None, "id": None}
    asked = messages.parse(json.dumps(body).encode(), None)

    assert (asked.outputs, asked.parameters, asked.id) == ([], {}, "")


@pytest.mark.parametrize("shape", [[0, 1 << 40, 1 << 40], [1] * 33, [10**30]])
def test_shapes_that_no_array_has(shape: list[int]) -> None:
    inputs = [{"name": "a", "datatype": "INT8", "shape": shape, "data": []}]
    with pytest.raises(BadRequest, match="input 'a'"):
        messages.parse(json.dumps({"inputs": inputs}).encode(), None)


def test_a_whole_body_fits_the_declared_input() -> None:
    def parse(spec: TensorSpec, body: bytes, rows_max: int = 0) -> Any:
        [found] = messages.parse(body, "0", Signature((spec,), (), rows_max)).inputs
        return found.shape, bytes(found.raw)

    numbers = struct.pack("<4h", 1, 2, 3, 4)
    assert parse(TensorSpec("x", "INT16", (2, -1)), numbers) == ((2, 2), numbers)
    assert parse(TensorSpec("x", "INT16", (-1, 4)), numbers, 8) == ((1, 4), numbers)
    assert parse(TensorSpec("x", "BYTES", (-1, 1)), b"text", 8) == (
        (1, 1),
        pack_bytes([b"text"]),
    )
    for spec, text in (
        (TensorSpec("x", "INT16", (-1, -1)), "more than one dimension"),
        (TensorSpec("x", "INT16", (3,)), "8 bytes of binary data"),
        (TensorSpec("x", "INT16", (3, -1)), "8 bytes of binary data"),
    ):
        with pytest.raises(BadRequest, match=text):
            parse(spec, numbers)


def test_rows_of_inputs_agree() -> None:
    specs = tuple(TensorSpec(name, "INT8", (-1,)) for name in "ab")
    inputs = [Tensor("a", "INT8", (1,), b"1"), Tensor("b", "INT8", (2,), b"12")]
    with pytest.raises(BadRequest, match="input 'b': 2 rows, but input 'a' has 1"):
        check_request(Signature(specs, (), 4), messages.Infer(inputs, [], {}, ""))
