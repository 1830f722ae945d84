from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.archiver.errors import ConfigError
from marserve.frontend.properties import (
    Property,
    format_properties,
    parse_properties,
    read_properties,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in parse_properties(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", ("a", "b")),
        ("a:b", ("a", "b")),
        ("a b", ("a", "b")),
        ("  a \t=\f b ", ("a", "b ")),
        ("a", ("a", "")),
        ("a=", ("a", "")),
        ("a==b", ("a", "=b")),
        ("a  : =b", ("a", "=b")),
        (r"a\=\:\ b = c", ("a=: b", "c")),
        (r"a=\t\n\r\f\\\q", ("a", "\t\n\r\f\\q")),
        (r"a=\u00e9\ud83d\ude00", ("a", "é😀")),
        ("a=b\\\n   c", ("a", "bc")),
        ("a=b\\\r\n   c", ("a", "bc")),
        ("a=b\\\n", ("a", "b")),
        ("a=b\\\n#c", ("a", "b#c")),
        ("a=b\\\\\nc=d", ("a", "b\\")),
        ("a=# no comment", ("a", "# no comment")),
        ("=b", ("", "b")),
    ],
)
def test_one_entry(text: str, expected: tuple[str, str]) -> None:
    assert expected == pairs(text)[0]


def test_comments_and_blank_lines_are_no_entries() -> None:
    text = "# a=1\n  ! b=2\n\n \t\nc=3\r# d=4\\\ne=5"

    assert [("c", "3"), ("e", "5")] == pairs(text)


def test_entries_know_their_lines() -> None:
    text = "# comment\na=1\\\n  2\n\nb=3\n"

    assert [Property("a", "12", 2), Property("b", "3", 5)] == parse_properties(text)


def test_a_broken_escape_is_an_error_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"config\.properties:2: .*four hexadecimal digits"):
        parse_properties("a=1\nb=\\u12g4")


def test_a_file_may_be_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "c.properties"
    path.write_bytes("a=é".encode("latin-1"))

    assert "é" == read_properties(path)[0].value


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties: cannot be read: No such file"):
        read_properties(tmp_path / "absent.properties")


@given(st.dictionaries(TEXT, TEXT))
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read_back(entries: dict[str, str]) -> None:
    text = format_properties(entries)

    assert entries == dict(pairs(text))


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_properties(text)
