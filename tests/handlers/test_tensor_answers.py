"""What handlers return for V2 requests, as bytes with a layout."""

from __future__ import annotations

import json

import numpy
import torch

from marserve.archiver.tensor_marks import MARK
from marserve.handlers.tensors import NO_TENSORS, TensorAnswer, decode_tensor, encode_outputs


def test_bfloat16_leaves_as_it_is_and_arrives_as_float32() -> None:
    value = torch.tensor([[1.5, -2.0, 3.140625]], dtype=torch.bfloat16)
    layout, data = encode_outputs({"x": value})

    assert json.loads(layout) == [["x", "BF16", [1, 3], 6]]
    array = decode_tensor(f"{MARK}BF16 1,3", bytearray(b"".join([data])))
    assert (array.dtype, array.tolist()) == (numpy.float32, value.tolist())


def test_parameters_of_outputs_stand_in_the_layout() -> None:
    own = {"b": {"content_type": "str"}}
    answer = TensorAnswer({"a": [1], "b": ["x"]}, output_parameters=own)
    layout, _ = encode_outputs(answer)

    assert [each[4:] for each in json.loads(layout)] == [[], [{"content_type": "str"}]]


def test_nothing_ends_an_answer() -> None:
    layout, data = encode_outputs(NO_TENSORS)

    assert (layout, len(data)) == ("", 0)
