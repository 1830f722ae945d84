"""The quick encoder writes what Python's own writes, to the byte."""

from __future__ import annotations

import json
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marserve.worker.indented_json import dumps

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=30,
)


class Level(IntEnum):
    LOW = 1


@given(values)
def test_the_text_is_that_of_json(value: Any) -> None:
    assert json.dumps(value, indent=2) == dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", None: [1], 2.5: {}},
        OrderedDict(b=1, a=[OrderedDict(c=2)]),
        [Level.LOW, {"level": Level.LOW}],
        (1, (2, [3])),
        {"a": {"b": {1: 2}}},
        [[], {}, [[]], ""],
        float("inf"),
    ],
)
def test_what_is_out_of_the_ordinary_is_as_json_has_it(value: Any) -> None:
    assert json.dumps(value, indent=2) == dumps(value)


def test_errors_are_those_of_json() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(TypeError, match="not JSON serializable"):
        dumps({"a": [object()]})
    with pytest.raises(ValueError, match="Circular reference"):
        dumps(ring)


def test_deep_values_are_as_json_has_them() -> None:
    deep: list[Any] = []
    for _ in range(600):
        deep = [deep]
    assert json.dumps(deep, indent=2) == dumps(deep)
