from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.worker import wire

text = st.text(max_size=20)
parts = st.builds(wire.Part, name=text, size=st.integers(0, 50), content_type=st.none() | text)
requests = st.builds(
    wire.Request,
    id=text,
    command=st.sampled_from(["predict", "explain", "describe"]),
    headers=st.dictionaries(text, text, max_size=3),
    parts=st.lists(parts, max_size=3),
)
replies = st.builds(
    wire.Reply,
    id=text,
    status=st.integers(100, 599),
    size=st.integers(0, 50),
    last=st.booleans(),
    phrase=text,
    headers=st.dictionaries(text, text, max_size=2),
    failure=st.none() | st.builds(wire.Failure, type=text, message=text),
)
messages = st.one_of(
    st.builds(wire.Predict, requests=st.lists(requests, max_size=4)),
    st.builds(wire.Replies, replies=st.lists(replies, max_size=4)),
    st.builds(wire.Cancel, ids=st.lists(text, max_size=3)),
    st.builds(wire.Loaded, pid=st.integers(0, 1 << 22)),
)
bodies = st.lists(st.binary(max_size=400_000), max_size=2)


@settings(max_examples=60, deadline=None)
@given(frames=st.lists(st.tuples(messages, bodies), max_size=5), data=st.data())
def test_any_slicing_gives_the_same_messages(frames, data):  # type: ignore[no-untyped-def]
    stream = b"".join(bytes(b) for m, body in frames for b in wire.encode(m, body))
    decoder, got, at = wire.Decoder(), [], 0

    while at < len(stream):
        step = data.draw(st.integers(1, max(1, len(stream) // 3)))
        got += decoder.feed(stream[at : at + step])
        at += step

    assert got == [(m, bytearray(b"".join(body))) for m, body in frames]


def test_one_byte_at_a_time() -> None:
    message = wire.Predict([wire.Request("a", "predict", {"k": "v"}, [wire.Part("body", 5)])])
    stream = b"".join(map(bytes, wire.encode(message, [b"hello"])))
    decoder = wire.Decoder()

    got = [m for i in range(len(stream)) for m in decoder.feed(stream[i : i + 1])]

    assert got == [(message, bytearray(b"hello"))]


def test_header_larger_than_the_buffer() -> None:
    message = wire.Cancel(["x" * 100] * 10_000)
    stream = b"".join(map(bytes, wire.encode(message)))

    got = wire.Decoder().feed(stream)

    assert got == [(message, bytearray())]


def test_large_body_is_received_in_place() -> None:
    size = 3 << 20
    head, body = wire.encode(wire.Loaded(1), [b"x" * size])
    decoder = wire.Decoder()
    decoder.feed(head)

    room = decoder.get_buffer()

    assert len(room) == size
    room[:] = body
    del room
    assert decoder.commit(size) == [(wire.Loaded(1), bytearray(body))]


def test_limits_are_checked_before_anything_is_allocated() -> None:
    decoder = wire.Decoder(max_body_bytes=1000)

    with pytest.raises(wire.WireError, match="exceeds the limits"):
        decoder.feed(struct.pack("<IQ", 10, 1 << 50))


def test_garbage_is_refused() -> None:
    with pytest.raises(wire.WireError, match="cannot be read"):
        wire.Decoder().feed(struct.pack("<IQ", 4, 0) + b"\xc1\xc1\xc1\xc1")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_wire_errors(data: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        wire.Decoder(max_body_bytes=1 << 16).feed(data)
