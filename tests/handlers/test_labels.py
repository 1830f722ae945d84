from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.labels import class_names, load_label_mapping

TWO = {0: "LABEL_0", 1: "LABEL_1"}


def mapping(tmp_path: Path, content: Any) -> Any:
    path = tmp_path / "index_to_name.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_label_mapping(path)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ({"0": "no", "1": "yes"}, ["no", "yes"]),
        ({"1": "yes", "0": "no"}, ["no", "yes"]),
        ({"0": ["n01", "no"], "1": ["n02", "yes"]}, ["no", "yes"]),
        ({"label_list": "[O, B-MISC]"}, ["O", "B-MISC"]),
        ({"label_list": "['O', 'B-MISC']"}, ["O", "B-MISC"]),
        ({"object_type_names": ["no", "yes"]}, ["no", "yes"]),
        ({}, ["LABEL_0", "LABEL_1"]),
    ],
)
def test_every_form_names_the_classes(tmp_path: Path, content: Any, names: list[str]) -> None:
    assert names == class_names(mapping(tmp_path, content), TWO)


def test_no_file_is_no_mapping(tmp_path: Path) -> None:
    assert load_label_mapping(tmp_path / "index_to_name.json") is None
    assert class_names(None, TWO) == ["LABEL_0", "LABEL_1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ([1], "expected an object"),
        ({"0": 3}, '"0": expected a name'),
        ({"0": []}, '"0": expected a name'),
        ({"0": "no"}, "names no class 1"),
        ({"label_list": "[O]"}, "lists 1 names"),
    ],
)
def test_what_does_not_name_them_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(HandlerLoadError, match=message):
        class_names(mapping(tmp_path, content), TWO)
