"""MLServer's folders in a model store: found, opened by their paths, and reviewed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marserve.archiver.findings import Finding
from marserve.archiver.mlserver_folder import rank
from marserve.archiver.unpack import open_directory
from marserve.frontend.config import ServerConfig
from marserve.frontend.errors import InvalidModel, ModelNotFound
from marserve.frontend.review import review
from marserve.frontend.store import ModelStore


def folder(directory: Path, **settings: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"implementation": "code.Runtime", **settings}, indent=1)
    (directory / "model-settings.json").write_text(content)
    return directory


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ModelStore]:
    found = ModelStore(ServerConfig(model_store=tmp_path))
    yield found
    found.close()


async def test_models_have_the_paths_of_their_folders(store: ModelStore, tmp_path: Path) -> None:
    folder(tmp_path / "one", name="first")
    folder(tmp_path / "group" / "two", name="second")
    folder(tmp_path / "group" / "bad", max_batch_size="many")

    assert store.available() == ["group/bad", "group/two", "one"]
    assert (await store.fetch("group/two")).manifest.model.model_name == "second"
    with pytest.raises(InvalidModel, match=r"group/bad: model-settings\.json: \$\.max_batch_size"):
        await store.fetch("group/bad")
    with pytest.raises(ModelNotFound):
        await store.fetch("group/three")


async def test_a_store_may_be_a_model_itself(store: ModelStore, tmp_path: Path) -> None:
    folder(tmp_path, name="itself")

    assert store.available() == ["."]
    assert (await store.fetch(".")).manifest.model.model_name == "itself"


def test_the_last_version_by_rank_answers_where_none_is_named(tmp_path: Path) -> None:
    def archive(version: str | None) -> Any:
        given = {} if version is None else {"parameters": {"version": version}}
        return open_directory(folder(tmp_path / f"v{version}", **given))

    versions = ["beta", "2", None, "10", "alpha"]
    ordered = sorted(map(archive, versions), key=rank)

    names = [each.config.raw["mlserver"].get("parameters", {}).get("version") for each in ordered]
    assert names == ["alpha", "beta", "2", "10", None]


def shown(findings: list[Finding]) -> list[str]:
    return [finding.render().splitlines()[0] for finding in findings]


def test_a_review_names_places_and_keys(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{\n "debug": true\n}')
    good = folder(tmp_path / "good", warm_workers=True)
    (good / "code.py").write_text("import mlserver\nimport no_such_package\n")
    folder(tmp_path / "group" / "bad", max_batch_size="many")

    found = shown(review(tmp_path))

    assert found == [
        "settings.json:2: note: debug: has no effect: tracebacks are in the model log",
        "good: model-settings.json:3: note: warm_workers: has no effect: workers load when the"
        " model is registered",
        "good: code.py:2: error: no_such_package is imported and not installed here",
        "group/bad: model-settings.json:3: error: max_batch_size: expected int >= 0, got 'many'",
    ]
