from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.api.management_requests import parse_traffic
from marserve.frontend.errors import BadRequest
from marserve.frontend.traffic import Split

DRAWS = 4000
VERSIONS = ("1.0", "2.0", "3.0", "4.0")
WEIGHTS = st.dictionaries(
    st.sampled_from(VERSIONS), st.integers(0, 100) | st.floats(0, 100), min_size=1
).filter(lambda weights: any(weight > 0 for weight in weights.values()))


@settings(max_examples=50, deadline=None)
@given(WEIGHTS, st.integers(0, 2**32))
def test_shares_are_those_of_the_weights(weights: dict[str, float], seed: int) -> None:
    split = Split(weights, random.Random(seed).random)
    seen = Counter(split.draw() for _ in range(DRAWS))
    total = sum(weights.values())

    assert set(seen) <= {version for version, weight in weights.items() if weight > 0}
    for version, weight in weights.items():
        assert abs(seen[version] / DRAWS - weight / total) < 0.06  # more than 7 sigma


@settings(max_examples=100, deadline=None)
@given(WEIGHTS, st.sets(st.sampled_from(VERSIONS)), st.integers(0, 2**32))
def test_version_that_cannot_serve_gets_nothing(
    weights: dict[str, float], able: set[str], seed: int
) -> None:
    split = Split(weights, random.Random(seed).random)

    assert {split.pick(able.__contains__, "1.0") for _ in range(50)} <= able | {"1.0"}


def test_share_of_a_version_that_cannot_serve_goes_to_the_default() -> None:
    split = Split({"1.0": 50, "2.0": 25, "3.0": 25}, random.Random(1).random)

    seen = Counter(split.pick({"1.0", "2.0"}.__contains__, "1.0") for _ in range(DRAWS))

    assert seen["2.0"] / DRAWS == pytest.approx(0.25, abs=0.04)
    assert set(seen) == {"1.0", "2.0"}


@settings(max_examples=50, deadline=None)
@given(WEIGHTS, st.sampled_from(VERSIONS))
def test_removed_version_leaves_the_others_in_proportion(
    weights: dict[str, float], version: str
) -> None:
    rest = Split(weights).without(version)

    expected = {name: weight for name, weight in weights.items() if name != version}
    assert (rest.weights if rest else None) == (expected if any(expected.values()) else None)


def test_numbers_at_the_ends_of_the_range_draw_a_version() -> None:
    assert Split({"1.0": 1, "2.0": 1}, lambda: 0.0).draw() == "1.0"
    assert Split({"1.0": 0.1, "2.0": 0.2}, lambda: 1 - 2**-53).draw() == "2.0"


def test_rules_are_read() -> None:
    body = b'{"weights": {"1.0": 90, "2.0": 10}, "shadow": "3.0"}'

    assert parse_traffic(body) == ({"1.0": 90, "2.0": 10}, "3.0")
    assert parse_traffic(b"{}") == (None, None)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "no JSON object"),
        (b'{"weight": {}}', "'weight'"),
        (b'{"weights": [1]}', "must be an object"),
        (b'{"weights": {"1.0": -1}}', "1.0"),
        (b'{"weights": {"1.0": true}}', "1.0"),
        (b'{"weights": {"1.0": NaN}}', "1.0"),
        (b'{"weights": {"1.0": "9"}}', "1.0"),
        (b'{"weights": {"1.0": 0}}', "above 0"),
        (b'{"weights": {}}', "above 0"),
        (b'{"shadow": ["2.0"]}', "shadow"),
    ],
)
def test_rules_that_make_no_sense_are_refused(body: bytes, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        parse_traffic(body)
