from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.archiver.errors import ArchiveError
from marserve.archiver.manifest import Manifest, ManifestModel, check_model_name

MANIFEST = Manifest(
    created_on="01/01/1980 00:00:00",
    runtime="python",
    model=ManifestModel(
        model_name="m",
        handler="h:f",
        model_version="1.0",
        serialized_file="w.pt",
        config_file="sub/c.yaml",
    ),
    archiver_version="x",
)


def test_the_keys_and_their_order_are_those_of_torchserve() -> None:
    plain = json.loads(MANIFEST.with_digests({"b": "2", "a": "1"}).to_json())

    assert list(plain) == ["createdOn", "runtime", "model", "archiverVersion", "marserve"]
    assert list(plain["model"]) == [
        *("modelName", "serializedFile", "handler", "modelVersion", "configFile")
    ]
    assert list(plain["marserve"]["sha256"]) == ["a", "b"]


def test_what_was_written_is_read() -> None:
    signed = MANIFEST.with_digests({"a": "1"})

    assert Manifest.from_json(signed.to_json()) == signed
    assert signed.digests == {"a": "1"}
    assert MANIFEST.digests == {}


def test_keys_of_older_archivers_are_ignored() -> None:
    plain = MANIFEST.as_dict() | {"specificationVersion": "1.0", "licenses": [1]}

    assert Manifest.from_json(json.dumps(plain).encode()) == MANIFEST


@pytest.mark.parametrize("name", ["m", "M_1-2.3", "0"])
def test_a_model_name_is_allowed(name: str) -> None:
    check_model_name(name)


@pytest.mark.parametrize("name", ["", ".", "-a", "_a", "a/b", "a b", "a\n", "ä", "a:b", "../a"])
def test_a_model_name_is_refused(name: str) -> None:
    with pytest.raises(ArchiveError, match="is not allowed: it must begin with a letter"):
        check_model_name(name)


KEYS = st.sampled_from(
    ["runtime", "model", "modelName", "modelVersion", "handler", "configFile", "marserve", "sha256"]
)
VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.floats()
    | st.sampled_from(["python", "m"])
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=15,
)


@settings(max_examples=100, deadline=None)
@given(model=st.dictionaries(KEYS, VALUES), rest=st.dictionaries(KEYS, VALUES), junk=st.binary())
def test_any_content_gives_a_manifest_or_an_archive_error(
    model: dict[str, Any], rest: dict[str, Any], junk: bytes
) -> None:
    for data in (json.dumps({**rest, "model": model}).encode(), json.dumps(rest).encode(), junk):
        with contextlib.suppress(ArchiveError):
            Manifest.from_json(data).to_json()
