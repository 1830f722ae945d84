"""Many numbers at a time are read and written as few are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from marserve.frontend.errors import BadRequest
from marserve.frontend.v2 import numbers
from marserve.frontend.v2.messages import Answer, Infer, parse, render
from marserve.frontend.v2.tensors import Tensor, from_json, to_json

TYPES = {
    "FP16": "f2",
    "FP32": "f4",
    "FP64": "f8",
    "INT8": "i1",
    "INT16": "i2",
    "INT32": "i4",
    "INT64": "i8",
    "UINT8": "u1",
    "UINT16": "u2",
    "UINT32": "u4",
    "UINT64": "u8",
}
MANY = 600


def body(datatype: str, shape: list[int], data: Any) -> bytes:
    one = {"name": "x", "datatype": datatype, "shape": shape, "data": data}
    return json.dumps({"inputs": [one]}).encode()


@pytest.mark.parametrize("datatype", TYPES)
@given(data=st.data())
def test_they_come_and_go_as_few_do(datatype: str, data: st.DataObject) -> None:
    kind = np.dtype(TYPES[datatype])
    whole: Any = {"allow_nan": False, "allow_infinity": False} if kind.kind == "f" else {}
    elements = arrays.from_dtype(kind, **whole)
    values = data.draw(arrays.arrays(kind, st.just((1, MANY)), elements=elements))

    for nested in (values.tolist(), values[0].tolist()):
        read = parse(body(datatype, [1, MANY], nested), None).inputs[0]
        assert values.tobytes() == read.raw
    tensor = Tensor("y", datatype, (1, MANY), values.tobytes())
    head, _ = render(Infer([], [], {}, ""), Answer("m", "1", [tensor], {}, {}))
    written = np.array(json.loads(head)["outputs"][0]["data"], kind)
    assert values.tobytes() == written.tobytes()


def test_the_quick_way_is_taken() -> None:
    text = json.dumps([0.5] * MANY).encode()
    assert np.full(MANY, 0.5, "f4").tobytes() == numbers.packed("FP32", [MANY], text)
    assert numbers.listed("FP32", bytes(4 * MANY)) is not None
    assert numbers.packed("FP32", [2], b"[1, 2]") is None
    assert numbers.listed("FP32", bytes(8)) is None


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "says"),
    [
        ("INT8", [MANY], [1] * (MANY - 1) + [200], "data are not INT8"),
        ("INT32", [MANY], [1] * (MANY - 1) + [1.5], "data are not INT32"),
        ("FP16", [MANY], [1] * (MANY - 1) + [1e5], "data are not FP16"),
        ("UINT8", [MANY], [1] * (MANY - 1) + [-1], "data are not UINT8"),
        ("FP32", [MANY], [1] * (MANY - 1) + [True], "expected numbers"),
        ("FP32", [MANY], [1] * (MANY - 1) + [None], "data are not FP32"),
        ("FP32", [MANY], [1.0] * (MANY + 1), "601 values in data"),
        ("FP32", [2, MANY], [[1.0] * (MANY - 1), [1.0] * (MANY + 1)], "not nested as shape"),
        ("FP32", [MANY, 1], [[1.0] * MANY], "not nested as shape"),
        ("FP32", [1, MANY], [*range(MANY - 1), [1]], "not nested as shape"),
        ("FP32", [1, MANY], [*range(MANY), []], "not nested as shape"),
        ("FP32", [1, MANY], [[], *range(MANY)], "not nested as shape"),
    ],
)
def test_what_is_wrong_is_said_as_ever(
    datatype: str, shape: list[int], data: Any, says: str
) -> None:
    with pytest.raises(BadRequest, match=says):
        parse(body(datatype, shape, data), None)


def test_nesting_without_end_is_a_bad_request() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    text = body("FP32", [1], []).replace(b"[]", deep)
    with pytest.raises(BadRequest):
        parse(text, None)


@pytest.mark.parametrize("text", [b'"x"', b'"FP32"', b"[]"])
def test_text_that_is_no_utf8_is_a_bad_request(text: bytes) -> None:
    whole = body("FP32", [1], [])
    with pytest.raises(BadRequest):
        parse(whole.replace(text, b'["\xff"]' if text == b"[]" else b'"\xff"'), None)


def test_a_number_too_large_for_fp32_is_infinite_however_many_there_are() -> None:
    values = [1e39] * MANY
    few = from_json("x", "FP32", [1], values[:1]).raw
    assert bytes(few) * MANY == bytes(parse(body("FP32", [MANY], values), None).inputs[0].raw)


def test_parameters_beside_many_numbers_may_be_any() -> None:
    tensor = Tensor("y", "FP32", (MANY,), bytes(4 * MANY))
    head, _ = render(Infer([], [], {}, ""), Answer("m", "1", [tensor], {"n": 2**64}, {}))
    assert 2**64 == json.loads(head)["parameters"]["n"]


def test_numbers_that_json_has_no_form_for_are_refused() -> None:
    tensor = Tensor("y", "FP32", (MANY,), np.full(MANY, np.nan, "f4").tobytes())
    with pytest.raises(BadRequest, match="NaN"):
        render(Infer([], [], {}, ""), Answer("m", "1", [tensor], {}, {}))
    with pytest.raises(BadRequest, match="NaN"):
        to_json(tensor)
