from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.api.management_requests import (
    parse_page,
    parse_register,
    parse_scale,
    render_page,
)
from marserve.frontend.errors import BadRequest, ModelNotFound
from marserve.frontend.registration import Registration


def register(
    query: Mapping[str, str] = MappingProxyType({}),
    content_type: str | None = None,
    body: bytes = b"",
) -> tuple[Registration, list[str]]:
    return parse_register(query.items(), content_type, body)


def test_register_from_the_query() -> None:
    query = {
        "url": "a.mar",
        "model_name": "m",
        "handler": "h:f",
        "runtime": "python3",
        "batch_size": "4",
        "max_batch_delay": "0",
        "initial_workers": "2",
        "synchronous": "false",
        "response_timeout": "7",
        "startup_timeout": "8",
        "s3_sse_kms": "true",
    }
    expected = Registration("a.mar", "m", "h:f", "python3", 4, 0, 2, False, 7, 8)

    assert register(query) == (expected, [])


def test_register_leaves_what_is_not_given() -> None:
    assert register({"url": "a.mar"}) == (Registration("a.mar"), [])


def test_register_sentinels_of_older_clients() -> None:
    query = {"url": "a", "batch_size": "-1", "max_batch_delay": "-100", "response_timeout": "-1"}

    assert register(query)[0] == Registration("a")


@pytest.mark.parametrize(
    "body",
    [
        b'{"url": "a.mar", "batch_size": 4, "synchronous": false}',
        b'{"url": "a.mar", "batch_size": "4", "synchronous": "False"}',
        b"{'url': 'a.mar', 'batch_size': '4', 'synchronous': 'false'}",
        b"{url: a.mar, batch_size: 4.0, synchronous: false}",
    ],
)
def test_register_from_json(body: bytes) -> None:
    found, unknown = register({}, "application/json; charset=utf-8", body)

    assert found == Registration("a.mar", batch_size=4, synchronous=False)
    assert unknown == []


def test_register_names_what_does_not_exist() -> None:
    assert register({"url": "a", "batchsize": "4"})[1] == ["batchsize"]


@pytest.mark.parametrize(
    ("query", "match"),
    [
        ({}, "Parameter url is required"),
        ({"url": "a", "batch_size": "four"}, "batch_size must be an integer, not 'four'"),
        ({"url": "a", "batch_size": "0"}, "batch_size must be 1 to"),
        ({"url": "a", "batch_size": "1.5"}, "batch_size must be an integer"),
        ({"url": "a", "batch_size": "9" * 5000}, "batch_size"),
        ({"url": "a", "initial_workers": "-1"}, "initial_workers"),
        ({"url": "a", "response_timeout": "0"}, "response_timeout must be 1 to"),
        ({"url": "a", "synchronous": "maybe"}, "synchronous must be true or false"),
        ({"url": "a", "runtime": "ruby"}, "Invalid RuntimeType value: ruby"),
    ],
)
def test_register_refused(query: Any, match: str) -> None:
    with pytest.raises(BadRequest, match=match):
        register(query)


def test_register_empty_url() -> None:
    with pytest.raises(ModelNotFound, match="empty url"):
        register({"url": ""})


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"{", b"[" * 100_000, b"\xff", b"!!python/x y"])
def test_register_needs_an_object(body: bytes) -> None:
    with pytest.raises(BadRequest, match="no JSON object"):
        register({}, "application/json", body)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["url", "batch_size", "synchronous", "model_name", "runtime", "x"])


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_any_json_is_read_or_refused(value: dict[str, Any]) -> None:
    try:
        found, _ = register({}, "application/json", json.dumps(value).encode())
    except (BadRequest, ModelNotFound):
        return
    assert isinstance(found, Registration)


def test_scale() -> None:
    assert parse_scale([]) == ((1, None, False, None), [])
    query = [("min_worker", "2"), ("max_worker", "3"), ("synchronous", "true"), ("x", "")]
    assert parse_scale(query) == ((2, 3, True, None), ["x"])
    assert parse_scale([("min_worker", "0"), ("model_version", "2.0")])[0] == (
        0,
        None,
        False,
        "2.0",
    )


@pytest.mark.parametrize(
    ("query", "match"),
    [
        ([("min_worker", "3"), ("max_worker", "2")], "max_worker cannot be less than min_worker"),
        ([("min_worker", "-1")], "min_worker must be 0 to"),
        ([("max_worker", "many")], "max_worker must be an integer"),
    ],
)
def test_scale_refused(query: Any, match: str) -> None:
    with pytest.raises(BadRequest, match=match):
        parse_scale(query)


def test_pages() -> None:
    models = [(f"m{i:03}", f"m{i}.mar") for i in range(205)]
    seen: list[tuple[str, str]] = []
    token = 0
    while True:
        page = render_page(models, token, 100)
        seen += [(each["modelName"], each["modelUrl"]) for each in page["models"]]
        if "nextPageToken" not in page:
            break
        token = int(page["nextPageToken"])

    assert seen == models
    assert render_page(models, 500, 100) == {"models": []}
    assert "nextPageToken" not in render_page(models[:100], 0, 100)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, (100, 0)),
        ({"limit": "5", "next_page_token": "10"}, (5, 10)),
        ({"limit": "-1", "next_page_token": "-3"}, (100, 0)),
        ({"limit": "101"}, (100, 0)),
    ],
)
def test_page_parameters(query: Any, expected: Any) -> None:
    assert parse_page(query) == expected


def test_page_parameters_refused() -> None:
    with pytest.raises(BadRequest, match="limit must be an integer"):
        parse_page({"limit": "x"})
