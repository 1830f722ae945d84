"""HPACK: the examples of its specification, and blocks that are none."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.http2.errors import ConnectionFault
from marserve.frontend.http2.hpack import Decoder, encode
from marserve.frontend.http2.huffman import decode

MOST = 16 << 10
fields = st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=300)))


def test_requests_of_the_specification() -> None:
    """RFC 7541, appendix C.4: three blocks of one connection, in the Huffman code."""
    decoder = Decoder(MOST)
    first = decoder.decode(bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"))
    second = decoder.decode(bytes.fromhex("828684be5886a8eb10649cbf"))
    third = decoder.decode(bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"))
    host = (b":authority", b"www.example.com")
    common = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), host]

    assert common == first
    assert [*common, (b"cache-control", b"no-cache")] == second
    assert third == [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        host,
        (b"custom-key", b"custom-value"),
    ]


def test_responses_of_the_specification_that_evict() -> None:
    """RFC 7541, appendix C.6, with a table of 256 bytes."""
    decoder = Decoder(MOST)
    first = (
        "3fe1014882640258 85aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad"
        "171863c78f0b97c8e9ae82ae43d3"
    )
    decoder.decode(bytes.fromhex(first.replace(" ", "")))
    second = decoder.decode(bytes.fromhex("4883640effc1c0bf"))

    assert second is not None
    assert [(b":status", b"307"), (b"cache-control", b"private")] == second[:2]
    assert (b"location", b"https://www.example.com") == second[3]


@settings(deadline=None)
@given(fields)
def test_what_is_written_can_be_read(listed: list[tuple[bytes, bytes]]) -> None:
    assert listed == Decoder(1 << 30).decode(encode(listed))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=64), max_size=6))
def test_bytes_that_are_no_block(blocks: list[bytes]) -> None:
    decoder = Decoder(MOST)
    with suppress(ConnectionFault):
        for block in blocks:
            found = decoder.decode(block)
            assert found is None or sum(len(n) + len(v) + 32 for n, v in found) <= MOST

    assert decoder._size <= 4096


def test_a_short_block_that_stands_for_a_long_list_is_read_but_not_kept() -> None:
    decoder = Decoder(MOST)
    name = b"n" * 4000
    first = b"\x40\x7f" + b"\xa1\x1e" + name + b"\x00"  # kept in the table

    assert decoder.decode(first) == [(name, b"")]
    assert decoder.decode(b"\xbe" * 60_000) is None
    assert decoder.decode(b"\xbe") == [(name, b"")]


@pytest.mark.parametrize(
    "text",
    [
        "00",  # padding of zeros
        "ffffffff",  # the end of the string inside it
        "ff",  # eight bits of padding
        "fe",  # a code that is cut off
    ],
)
def test_strings_that_are_not_huffman(text: str) -> None:
    with pytest.raises(ConnectionFault, match="malformed"):
        decode(bytes.fromhex(text))


def test_a_table_larger_than_allowed() -> None:
    with pytest.raises(ConnectionFault, match="at most 4096"):
        Decoder(MOST).decode(b"\x3f\xe2\x1f")
