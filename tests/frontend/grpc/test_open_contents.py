"""Contents of tensors in messages: large raw ones are taken out, and nothing else changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.grpc import open_inference_pb2 as pb
from marserve.frontend.grpc.open.contents import (
    read_parameters,
    take_raw,
    write_parameters,
)

raws = st.lists(st.binary(max_size=40_000), max_size=4)
values = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
)


@settings(deadline=None)
@given(st.text(max_size=20), raws, st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_a_message_without_its_raw_contents_is_the_same_otherwise(
    name: str, contents: list[bytes], shape: list[int]
) -> None:
    message = pb.ModelInferRequest(model_name=name, id="i", raw_input_contents=contents)
    message.inputs.add(name=name, datatype="FP32", shape=shape)
    message.parameters["p"].double_param = 0.5
    data = message.SerializeToString()
    rest, taken = take_raw(bytearray(data))
    found = pb.ModelInferRequest.FromString(bytes(rest))
    both = list(found.raw_input_contents) + [bytes(each) for each in taken]
    del found.raw_input_contents[:], message.raw_input_contents[:]

    assert contents == both
    assert message == found


@settings(deadline=None)
@given(st.binary(max_size=50))
def test_bytes_that_are_no_message_are_left_alone(junk: bytes) -> None:
    data = bytes([0x3A, 0x80, 0x80, 0x01]) + bytes(16_384) + junk
    rest, taken = take_raw(data)
    try:
        whole = pb.ModelInferRequest.FromString(data)
    except Exception:
        assert rest == data or taken
        return
    found = pb.ModelInferRequest.FromString(bytes(rest))
    assert list(whole.raw_input_contents) == list(found.raw_input_contents) + [
        bytes(each) for each in taken
    ]


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=8), values))
def test_parameters_come_back(given_values: dict[str, Any]) -> None:
    message = pb.ModelInferRequest()
    write_parameters(given_values.items(), message.parameters)

    assert given_values == read_parameters(message.parameters)
