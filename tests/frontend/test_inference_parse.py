from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Sequence
from typing import cast
from urllib.parse import quote_plus

import aiohttp
import pytest
from aiohttp.abc import AbstractStreamWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.api import forms, http
from marserve.frontend.errors import BadRequest, InternalError, ServiceUnavailable, TooLarge
from marserve.frontend.types import Chunk
from marserve.worker.wire import Failure

QUICK = settings(max_examples=60, deadline=None)
URLENCODED = "application/x-www-form-urlencoded"


def fields(
    content_type: str | None, body: bytes, query: Sequence[tuple[str, str]] = ()
) -> list[tuple[str, str | None, bytes]]:
    parts, bodies = http.parse_body(content_type, body, query)
    assert [part.size for part in parts] == [len(each) for each in bodies]
    return [(p.name, p.content_type, bytes(b)) for p, b in zip(parts, bodies, strict=True)]


async def multipart_body(form: aiohttp.FormData) -> tuple[str, bytes]:
    payload = form()
    chunks = bytearray()

    class Collector:
        async def write(self, data: bytes) -> None:
            chunks.extend(data)

    await payload.write(cast(AbstractStreamWriter, Collector()))
    return payload.content_type, bytes(chunks)


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        (None, None),
        ("", None),
        ("application/json", "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        ("text/plain;charset=latin-1", "text/plain"),
    ],
)
def test_plain_body_is_one_part(content_type: str | None, kind: str | None) -> None:
    assert fields(content_type, b"abc") == [("body", kind, b"abc")]


def test_no_body_is_an_empty_part() -> None:
    assert fields(None, b"") == [("body", None, b"")]


def test_query_counts_where_asked() -> None:
    expected = [("a", None, b"1"), ("b", None, "ü".encode()), ("body", "text/plain", b"x")]

    assert fields("text/plain", b"x", [("a", "1"), ("b", "ü")]) == expected


def test_urlencoded() -> None:
    expected = [("a", None, b"x y"), ("b c", None, b"\xff="), ("a", None, b"2"), ("d", None, b"")]

    assert fields(URLENCODED, b"a=x+y&b+c=%FF%3D&&a=2&d") == expected


@pytest.mark.parametrize(
    "body",
    [b"hello", b"", b'{"text": "a=b"}', b"[1, 2]", b"I say a=b", b"<x y='1'>", b"=x", b'{"a": 1}'],
)
def test_bodies_that_only_claim_to_be_forms(body: bytes) -> None:
    assert fields(URLENCODED, body) == [("body", URLENCODED, body)]


def test_too_many_fields() -> None:
    with pytest.raises(BadRequest, match="more than 1000 fields"):
        http.parse_body(URLENCODED, b"a=1" + b"&a=1" * 1000)


@QUICK
@given(st.lists(st.tuples(st.text(min_size=1), st.binary()), min_size=1, max_size=8))
def test_urlencoded_round_trip(pairs: list[tuple[str, bytes]]) -> None:
    body = "&".join(f"{quote_plus(name)}={quote_plus(data)}" for name, data in pairs).encode()

    assert forms.looks_urlencoded(body)
    assert fields(URLENCODED, body) == [(name, None, data) for name, data in pairs]


async def test_multipart_from_a_real_client() -> None:
    form = aiohttp.FormData(default_to_multipart=True)
    form.add_field("text", "plain ü")
    form.add_field("data", b"\x00\r\n--x\xff", filename='a "b".bin', content_type="image/jpeg")
    form.add_field("json", b"{}", filename="a.json", content_type="application/json; a=b")
    form.add_field("empty", b"", filename="none", content_type="text/plain")
    content_type, body = await multipart_body(form)

    assert fields(content_type, body) == [
        ("text", None, "plain ü".encode()),
        ("data", "image/jpeg", b"\x00\r\n--x\xff"),
        ("json", "application/json", b"{}"),
        ("empty", "text/plain", b""),
    ]


@QUICK
@given(st.lists(st.binary(max_size=100), max_size=5), st.sampled_from(["", "x: y\r\n"]))
def test_multipart_round_trip(values: list[bytes], extra: str) -> None:
    boundary = "-=-unlikely-=-"
    body = b"preamble\r\n" if values else b""
    for value in values:
        head = f'--{boundary}\r\n{extra}Content-Disposition: form-data; name="f"\r\n\r\n'
        body += head.encode() + value + b"\r\n"
    body += f"--{boundary}--\r\n".encode()

    expected = [("f", None, value) for value in values]
    assert fields(f'multipart/form-data; boundary="{boundary}"', body) == expected


@pytest.mark.parametrize(
    ("content_type", "body", "match"),
    [
        ("multipart/form-data", b"--a--", "no usable boundary"),
        ("multipart/form-data; boundary=", b"--a--", "no usable boundary"),
        ("multipart/form-data; boundary=a", b"", "does not hold the boundary"),
        ("multipart/form-data; boundary=a", b"x--a--", "does not hold the boundary"),
        ("multipart/form-data; boundary=a", b"--a", "does not end"),
        ("multipart/form-data; boundary=a", b"--a\r\nA: b\r\n\r\nrest", "cut off"),
        ("multipart/form-data; boundary=a", b"--a\r\nA: b\r\n--a--", "headers do not end"),
        ("multipart/form-data; boundary=a", b"--a\r\nA: b\r\n\r\n\r\n--a--", "no field name"),
    ],
)
def test_broken_multipart(content_type: str | None, body: bytes, match: str) -> None:
    with pytest.raises(BadRequest, match=match):
        http.parse_body(content_type, body)


@QUICK
@given(st.binary(max_size=300))
def test_any_multipart_is_read_or_refused(noise: bytes) -> None:
    with contextlib.suppress(BadRequest):
        fields("multipart/form-data; boundary=a", b"--a\r\n" + noise)


def test_request_ids_are_random_uuids() -> None:
    ids = {http.new_request_id() for _ in range(1000)}

    assert len(ids) == 1000
    assert all(str(uuid.UUID(each)) == each and uuid.UUID(each).version == 4 for each in ids)
    assert {uuid.UUID(each).variant for each in ids} == {uuid.RFC_4122}


@pytest.mark.parametrize("value", ["0", "-1", "x", "inf", "nan", ""])
def test_timeout_refused(value: str) -> None:
    with pytest.raises(BadRequest, match="x-request-timeout"):
        http.parse_timeout(value)


def test_timeout() -> None:
    assert http.parse_timeout(None) is None
    assert http.parse_timeout("0.25") == 0.25


def test_headers_keep_their_spelling() -> None:
    raw = [(b"X-A", b"1"), (b"x-a", b"2"), (b"X-A", b"3"), (b"U", "ü".encode()), (b"L", b"\xfc")]

    assert http.decode_headers(raw, keyed=False) == {"X-A": "3", "x-a": "2", "U": "ü", "L": "ü"}


def test_size_names_limit_setting_and_size() -> None:
    http.check_size(10, 10)
    with pytest.raises(TooLarge, match=r"11 bytes.*limit is 10 bytes.*max_request_size"):
        http.check_size(11, 10)


def test_head_of_a_result() -> None:
    head = http.render_head(Chunk(b"x", 201, phrase="Made"), "id", http.NO_CACHE)

    assert head.status == 201
    assert head.phrase == "Made"
    assert head.headers == [("x-request-id", "id"), *http.NO_CACHE]


def test_handler_headers_win_but_not_over_the_framing() -> None:
    given_headers = {
        "Content-Type": "text/html",
        "cache-control": "max-age=1",
        "Content-Length": "7",
        "X-Request-Id": "mine",
    }
    head = http.render_head(Chunk(b"", headers=given_headers), "id", http.NO_CACHE)

    assert dict(head.headers) == {
        "x-request-id": "id",
        "Pragma": "no-cache",
        "Expires": "Thu, 01 Jan 1970 00:00:00 UTC",
        "Content-Type": "text/html",
        "cache-control": "max-age=1",
    }


@pytest.mark.parametrize("headers", [{"A": "b\r\nC: d"}, {"A b": "c"}, {"": "x"}, {"A": "\0"}])
def test_headers_cannot_split_the_response(headers: dict[str, str]) -> None:
    with pytest.raises(InternalError, match="response header"):
        http.render_head(Chunk(headers=headers), "id", [])


@pytest.mark.parametrize("status", [0, 99, 100, 199, 600, -1])
def test_statuses_that_http_cannot_carry(status: int) -> None:
    with pytest.raises(InternalError, match=str(status)):
        http.render_head(Chunk(status=status), "id", [])


def test_error_chunk() -> None:
    chunk = ServiceUnavailable('no "worker"', retry_after_s=3).chunk()
    head = http.render_head(chunk, "id", http.NO_CACHE)
    body = http.render_body(chunk)

    assert ("Retry-After", "3") in head.headers
    assert ("Content-Type", "application/json") in head.headers
    assert body == (
        b'{\n  "code": 503,\n  "type": "ServiceUnavailableException",\n'
        b'  "message": "no \\"worker\\""\n}\n'
    )


def test_failure_of_a_worker_is_an_internal_error() -> None:
    chunk = Chunk(status=500, failure=Failure("handler", "Prediction failed: ValueError: x"))

    assert json.loads(bytes(http.render_body(chunk)))["type"] == "InternalServerException"


def test_no_body_where_http_has_none() -> None:
    assert http.render_body(Chunk(b"x", 204)) == b""
