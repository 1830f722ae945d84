from __future__ import annotations

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.api.exchange import Exchange
from marserve.frontend.api.routing import Route, Router
from marserve.frontend.errors import MethodNotAllowed, ResourceNotFound


async def answer(exchange: Exchange) -> web.StreamResponse:
    raise AssertionError


GET = frozenset({"GET"})
PATTERNS = [
    "/",
    "/predictions/{model}",
    "/predictions/{model}/{version}/{rest*}",
    "/models",
    "/v1/models/{model}:predict",
    "/{model}/predict",
    "/metrics/{rest*}",
]
ROUTER = Router([Route(p, answer, GET if p == "/models" else frozenset()) for p in PATTERNS])


@pytest.mark.parametrize(
    ("path", "pattern", "parameters"),
    [
        ("/", "/", {}),
        ("", "/", {}),
        ("/predictions/a", "/predictions/{model}", {"model": "a"}),
        ("/predictions/a/", "/predictions/{model}", {"model": "a"}),
        (
            "/predictions/a/1.0",
            "/predictions/{model}/{version}/{rest*}",
            {"model": "a", "version": "1.0", "rest": ""},
        ),
        (
            "/predictions/a/1.0/x/y%20z",
            "/predictions/{model}/{version}/{rest*}",
            {"model": "a", "version": "1.0", "rest": "x/y z"},
        ),
        ("/predictions/a%2Fb", "/predictions/{model}", {"model": "a/b"}),
        ("/v1/models/m.x:predict", "/v1/models/{model}:predict", {"model": "m.x"}),
        ("/m/predict", "/{model}/predict", {"model": "m"}),
        ("/metrics", "/metrics/{rest*}", {"rest": ""}),
        ("/metrics/x", "/metrics/{rest*}", {"rest": "x"}),
    ],
)
def test_match(path: str, pattern: str, parameters: dict[str, str]) -> None:
    found = ROUTER.match("GET", path)

    assert found.route.pattern == pattern
    assert found.parameters == parameters


@pytest.mark.parametrize("path", ["/x", "/predictions", "/predictions//", "/v1/models/m", "*", "x"])
def test_unknown(path: str) -> None:
    with pytest.raises(ResourceNotFound):
        ROUTER.match("GET", path)


def test_method() -> None:
    assert ROUTER.match("GET", "/models").parameters == {}
    with pytest.raises(MethodNotAllowed):
        ROUTER.match("PUT", "/models")


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_path_is_matched_or_refused(path: str) -> None:
    try:
        found = ROUTER.match("GET", path)
    except ResourceNotFound:
        return
    assert found.route.pattern in PATTERNS


def test_cache_does_not_grow() -> None:
    router = Router([Route("/{model}", answer)])
    for number in range(10_000):
        router.match("GET", f"/{number}")

    assert len(router._found) <= 4096
