"""config.pbtxt: what is read, what is refused with line and key, what is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from marserve.archiver.errors import ConfigError
from marserve.archiver.triton_config import (
    load_triton_config,
    read_triton_config,
    render,
)

FULL = r"""
# Comments, and every way to write a list.
name: "full"  platform: ''
backend : "python"
max_batch_size: 0x8;
input [
  { name: "A" data_type: TYPE_FP32 dims: [ -1, 3 ] reshape { shape: [ 3 ] } },
  { name: 'B' data_type: 13, dims: 4 dims: 5 optional: true }
]
output: < name: "two " "words \n\x41\101" data_type: TYPE_BF16 dims: [ 1 ] >
dynamic_batching {
  preferred_batch_size: [ 4 ] priority_queue_policy { key: 1 value: { max_queue_size: 3 } }
}
parameters: { key: "a" value: { string_value: "1" } }
parameters [ { key: "b" value { string_value: "2" } } ]
response_cache { enable: True }
version_policy: { specific: { versions: [1, 3] } }
"""


def test_every_way_to_write_a_value() -> None:
    plain = read_triton_config(FULL).plain

    assert (plain["name"], plain["max_batch_size"]) == ("full", 8)
    assert [each["dims"] for each in plain["input"]] == [[-1, 3], [4, 5]]
    assert plain["input"][0]["reshape"] == {"shape": [3]}
    assert (plain["input"][1]["data_type"], plain["input"][1]["optional"]) == ("TYPE_STRING", True)
    assert plain["output"][0]["name"] == "two words \nAA"
    assert plain["parameters"] == {"a": {"string_value": "1"}, "b": {"string_value": "2"}}
    assert plain["dynamic_batching"]["priority_queue_policy"]["1"]["max_queue_size"] == 3
    assert plain["response_cache"] == {"enable": True}
    assert plain["version_policy"] == {"specific": {"versions": [1, 3]}}


def test_what_is_absent_has_its_default_or_is_absent() -> None:
    plain = read_triton_config('input { name: "A" }').plain

    assert plain["max_batch_size"] == 0
    assert plain["input"][0]["data_type"] == "TYPE_INVALID"
    assert plain["input"][0]["format"] == "FORMAT_NONE"
    assert "dynamic_batching" not in plain
    assert "dynamic_batching" in read_triton_config("dynamic_batching {}").plain


def test_what_is_rendered_reads_as_the_same() -> None:
    plain = read_triton_config(FULL).plain

    assert plain == read_triton_config("\n".join(render(plain))).plain


def test_keys_without_effect_are_named_with_their_lines() -> None:
    config = read_triton_config(
        'name: "x"\noptimization {\n  cuda { graphs: true }\n}\ninstance_group {\n'
        '  kind: KIND_CPU host_policy: "p"\n}'
    )

    places = [warning.split(" has no effect")[0] for warning in config.warnings]
    assert places == [
        "config.pbtxt: line 3: optimization.cuda:",
        "config.pbtxt: line 6: instance_group[0].host_policy:",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "\nmax_batch_sise: 8",
            "line 2: max_batch_sise: unknown key (did you mean max_batch_size?)",
        ),
        ('max_batch_size: "8"', "line 1: max_batch_size: expected a whole number, got '8'"),
        ("max_batch_size: 8 max_batch_size: 9", "line 1: max_batch_size: is there 2 times"),
        ("name: x", "line 1: name: expected a text in quotes, got x"),
        ("input {\n name: 'a' data_type: FP32\n}", "line 2: input[0].data_type: expected one of"),
        ("input {\n optional: yes }", "line 2: input[0].optional: expected true or false"),
        ("input [ {\n", "line 1: what begins here is not closed by '}'"),
        ("name 'x'", "line 1: name: expected ':' or '{'"),
        ("input: 3", "line 1: input[0]: expected a message in braces, got '3'"),
        ("response_cache { enable: { } }", "line 1: response_cache.enable: expected one value"),
        ("parameters { value { } }", "line 1: parameters: expected one key and one value"),
        ("\n\n]", "line 3: expected the name of a field, got ']'"),
        ("name: \x01", "line 1: cannot be read at"),
        ("input: " + "{ reshape: " * 40, "line 1: messages are nested deeper than 32"),
    ],
)
def test_an_error_names_line_and_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_triton_config(text)

    assert str(caught.value).startswith(f"config.pbtxt: {message}")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b"name: \xff")

    with pytest.raises(ConfigError, match=r"config\.pbtxt: is no UTF-8 text: byte 6"):
        load_triton_config(path)
