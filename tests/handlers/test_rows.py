from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.handlers.errors import RequestError
from marserve.handlers.rows import check_keys, read_value, text_field

JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["data", "body", "text"]), st.binary() | JSON))
def test_any_row_is_read_or_refused(row: dict[str, Any]) -> None:
    try:
        value = read_value(row)
    except RequestError:
        return
    assert isinstance(value, (str, dict))


@settings(max_examples=100, deadline=None)
@given(st.text().filter(lambda text: not text.strip().startswith("{")))
def test_plain_text_is_kept_as_it_is(text: str) -> None:
    if text.isprintable():
        assert text == read_value({"body": text.encode()})


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), st.integers() | st.text() | st.tuples(st.integers())))
def test_python_literals_are_objects(fields: dict[str, Any]) -> None:
    assert fields == read_value({"data": repr(fields)})


def test_a_set_is_no_object() -> None:
    with pytest.raises(RequestError, match="Python set"):
        read_value({"body": "{1, 2}"})


def test_an_empty_form_says_what_is_missing() -> None:
    with pytest.raises(RequestError, match="no keys"):
        text_field(read_value({}), "text", "...")  # type: ignore[arg-type]


def test_unknown_keys_are_listed_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"unknown parameter: b, 3 \(known: a\)"):
        check_keys(["a", "b", 3], ["a"])
