"""Frames out of bytes, wherever those are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.frontend.http2.wires import DATA, HEADERS, PING, WINDOW, frame, number

from marserve.frontend.http2.errors import Code, ConnectionFault
from marserve.frontend.http2.frames import Frame, FrameReader, read_settings

some = st.one_of(
    st.tuples(st.just(DATA), st.sampled_from([0, 1]), st.binary(max_size=300)),
    st.tuples(st.just(HEADERS), st.sampled_from([0, 1, 4, 5]), st.binary(max_size=300)),
    st.tuples(st.just(WINDOW), st.just(0), st.just(number(7))),
    st.tuples(st.just(PING), st.sampled_from([0, 1]), st.just(b"12345678")),
    st.tuples(st.integers(10, 255), st.integers(0, 255), st.binary(max_size=50)),
)


def joined(frames: list[Frame]) -> list[tuple[int, int, int, bytes]]:
    """Frames with the pieces of DATA put together, up to each that ends a stream."""
    out: list[tuple[int, int, int, bytes]] = []
    for kind, flags, stream, payload, _ in frames:
        last = out[-1] if out else None
        if last and kind == DATA == last[0] and stream == last[2] and not last[1]:
            out[-1] = (kind, flags, stream, last[3] + payload)
        else:
            out.append((kind, flags, stream, payload))
    return out


@settings(deadline=None)
@given(st.lists(some, max_size=12), st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_frames_are_the_same_wherever_they_are_cut(
    sent: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(frame(kind, flags, 3, payload) for kind, flags, payload in sent)
    reader, found, at = FrameReader(), [], 0
    for size in cuts * (len(data) // sum(cuts) + 1):
        found += list(reader.feed(data[at : at + size]))
        at += size
    whole = list(FrameReader().feed(data))

    assert joined(whole) == joined(found)
    assert [(k, f, p) for k, f, p in sent] == [(k, f, p) for k, f, _, p, _ in whole]
    assert not reader


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 255))
def test_padding_is_taken_off_and_counted(body: bytes, padding: int) -> None:
    payload = bytes([padding]) + body + bytes(padding)
    [(kind, flags, stream, found, taken)] = FrameReader().feed(frame(DATA, 8, 1, payload))

    assert (DATA, 8, 1, body) == (kind, flags, stream, found)
    assert padding + 1 == taken


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(DATA, 8, 1, b"\x05abc"), Code.PROTOCOL_ERROR),
        (frame(DATA, 8, 1, b""), Code.PROTOCOL_ERROR),
        (frame(HEADERS, 0x20, 1, b"1234"), Code.PROTOCOL_ERROR),
        (frame(PING, 0, 0, b"1234567"), Code.FRAME_SIZE_ERROR),
        (frame(WINDOW, 0, 1, b"123"), Code.FRAME_SIZE_ERROR),
        (frame(HEADERS, 4, 1, bytes(16385)), Code.FRAME_SIZE_ERROR),
        (frame(DATA, 0, 1, bytes(1 << 20)), Code.FRAME_SIZE_ERROR),
    ],
)
def test_frames_that_cannot_be(data: bytes, code: Code) -> None:
    with pytest.raises(ConnectionFault) as caught:
        list(FrameReader().feed(data))

    assert code == caught.value.code


def test_a_length_is_refused_before_its_bytes_are_collected() -> None:
    with pytest.raises(ConnectionFault):
        list(FrameReader().feed(b"\xff\xff\xff" + bytes([HEADERS, 4, 0, 0, 0, 1])))


def test_of_a_setting_that_comes_twice_the_last_counts() -> None:
    assert {4: 2, 9: 1} == read_settings(bytes.fromhex("000400000001000900000001000400000002"))
