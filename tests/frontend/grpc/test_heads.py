"""Heads of calls: what fields mean, and which are no request."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.grpc.framing import MessageReader, prefix
from marserve.frontend.grpc.heads import Head, Malformed, quoted

PSEUDO = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a.B/C")]
GRPC = (b"content-type", b"application/grpc")


def head(*more: tuple[bytes, bytes]) -> Head:
    return Head([*PSEUDO, GRPC, *more])


def test_metadata_without_what_is_not_the_handlers() -> None:
    found = head(
        (b"te", b"trailers"),
        (b"authorization", b"Bearer k"),
        (b"x-a", b"1"),
        (b"x-b-bin", b"AAA="),
        (b"grpc-timeout", b"1S"),
    )

    assert {"x-a": "1"} == found.headers
    assert "Bearer k" == found.authorization
    assert "/a.B/C" == found.path


@pytest.mark.parametrize(
    ("text", "seconds"), [("3H", 10800), ("2M", 120), ("5S", 5), ("7m", 0.007), ("9u", 9e-6)]
)
def test_timeouts(text: str, seconds: float) -> None:
    assert seconds == pytest.approx(head((b"grpc-timeout", text.encode())).timeout_s)


@pytest.mark.parametrize("text", ["", "5", "S", "-1S", "123456789S", "1.5S", "1 S", "5X"])
def test_timeouts_that_are_none(text: str) -> None:
    found = head((b"grpc-timeout", text.encode()))

    assert found.timeout_s is None
    assert found.error is not None


@pytest.mark.parametrize(
    "fields",
    [
        [],
        PSEUDO[:2],
        [GRPC, *PSEUDO],
        [*PSEUDO, PSEUDO[0]],
        [*PSEUDO, (b"Upper", b"x")],
        [*PSEUDO, (b"connection", b"close")],
        [*PSEUDO, (b"", b"x")],
    ],
)
def test_fields_that_are_no_request(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Malformed):
        Head(fields)


def test_what_is_no_grpc_is_answered_as_http() -> None:
    assert 415 == Head([*PSEUDO, (b"content-type", b"application/json")]).http_status
    assert 415 == Head([*PSEUDO, (b"content-type", b"application/grpc-web")]).http_status
    assert 405 == Head([(b":method", b"GET"), *PSEUDO[1:], GRPC]).http_status
    assert head().http_status is None
    assert Head([*PSEUDO, (b"content-type", b"application/grpc+proto")]).http_status is None


@settings(deadline=None)
@given(st.text(max_size=4000))
def test_texts_are_quoted_and_within_what_clients_take(text: str) -> None:
    found = quoted(text)
    whole = text.encode("utf-8", "replace")

    assert found.isascii()
    assert len(found) <= 6 << 10
    assert whole.startswith(unquote_to_bytes(found))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 20))
def test_messages_are_the_same_wherever_they_are_cut(messages: list[bytes], cut: int) -> None:
    data = b"".join(prefix(len(each)) + each for each in messages)
    reader, found = MessageReader(50, "identity"), []
    for at in range(0, len(data), cut):
        found += reader.feed(data[at : at + cut])

    assert messages == [bytes(each) for each in found]
    assert not reader
