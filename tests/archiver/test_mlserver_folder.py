"""Folders with a model-settings.json: what an archive is made of them, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marserve.archiver.errors import ConfigError
from marserve.archiver.foreign import served_below
from marserve.archiver.mlserver_settings import server_notices
from marserve.archiver.unpack import Archive, open_directory

HUGGING_FACE = "mlserver_huggingface.HuggingFaceRuntime"


def folder(directory: Path, **settings: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model-settings.json").write_text(json.dumps(settings))
    return directory


def opened(directory: Path, **settings: Any) -> Archive:
    return open_directory(folder(directory, implementation="code.Runtime", **settings))


def test_name_version_and_code_are_those_of_the_file(tmp_path: Path) -> None:
    archive = opened(tmp_path, name="sum", parameters={"version": "v2", "uri": "./x", "any": 1})

    assert (archive.manifest.model.model_name, archive.manifest.model.model_version) == (
        "sum",
        "v2",
    )
    assert archive.directory == tmp_path
    assert archive.config.raw["mlserver"]["parameters"]["any"] == 1
    assert not archive.config.warnings


def test_one_coroutine_a_request_unless_requests_are_joined(tmp_path: Path) -> None:
    alone = opened(tmp_path / "a")
    joined = opened(tmp_path / "b", max_batch_size=8, max_batch_time=0.02)

    assert (alone.config.async_communication, alone.config.batch_size) == (True, None)
    assert (joined.config.batch_size, joined.config.max_batch_delay) == (8, 20)
    assert not joined.config.async_communication


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_batch_size": "8"}, "model-settings.json: $.max_batch_size: expected int >= 0"),
        ({"max_batch_time": -1}, "model-settings.json: $.max_batch_time: expected seconds >= 0"),
        ({"max_batch_time": "1s"}, "$.max_batch_time: expected a number, got '1s'"),
        ({"implementation": ""}, "$.implementation: expected the import path"),
        ({"parameters": []}, "$.parameters: expected a mapping"),
        ({"parameters": {"version": 3}}, "$.parameters.version: expected a text"),
        ({"inputs": [{"name": "a", "datatype": "FP31"}]}, "$.inputs[0].datatype: expected one of"),
        ({"outputs": [{"datatype": "FP32"}]}, "$.outputs[0].name: expected the name"),
    ],
)
def test_wrong_values_are_refused_by_file_and_key(
    tmp_path: Path, settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_directory(folder(tmp_path, **{"implementation": "a.B", **settings}))

    assert named in str(caught.value)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model-settings.json").write_text("{'a': 1}")

    with pytest.raises(ConfigError, match=r"model-settings\.json: cannot be read as JSON"):
        open_directory(tmp_path)


def test_every_key_without_effect_is_named(tmp_path: Path) -> None:
    archive = opened(
        tmp_path,
        warm_workers=True,
        max_batch_sise=4,
        max_batch_size=4,
        parameters={"environment_tarball": "env.tar.gz", "inference_pool_gid": "x"},
    )
    keys = [text.split(": ")[1] for text in archive.config.warnings]

    assert keys == [
        "$.max_batch_sise",
        "$.warm_workers",
        "$.parameters.environment_tarball",
        "$.parameters.inference_pool_gid",
        "$.max_batch_size",
    ]
    assert "did you mean max_batch_size?" in archive.config.warnings[0]


def test_declared_tensors_are_shown_and_not_insisted_on(tmp_path: Path) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 2], "parameters": {"a": 1}}
    signature = opened(tmp_path, inputs=[tensor]).signature

    assert signature is not None
    assert not signature.strict
    assert signature.inputs[0].shape == (-1, 2)
    assert signature.inputs[0].parameters == {"a": 1}


def test_the_nearest_settings_file_says_how_many_processes(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"parallel_workers": 3, "http_port": 9}')
    config = opened(tmp_path / "group" / "model").config

    assert (config.min_workers, config.max_workers) == (3, 3)
    assert opened(tmp_path / "alone", parallel_workers=0).config.max_workers == 1
    [notice] = server_notices(tmp_path)
    assert notice.startswith("settings.json: $.http_port: is set by inference_address")


def test_answers_are_kept_if_model_and_server_want_it(tmp_path: Path) -> None:
    [warning] = opened(tmp_path / "alone", cache_enabled=True).config.warnings
    assert "$.cache_enabled: has no effect without cache_enabled: true" in warning
    (tmp_path / "settings.json").write_text('{"cache_enabled": true, "cache_size": 5}')
    kept = opened(tmp_path / "kept", cache_enabled=True).config

    assert kept.response_cache is True
    assert not kept.warnings
    assert not opened(tmp_path / "not_kept").config.response_cache
    assert "response_cache_size" in server_notices(tmp_path)[0]


def test_models_are_found_at_any_place_of_a_store(tmp_path: Path) -> None:
    folder(tmp_path / "one")
    folder(tmp_path / "group" / "two")
    folder(tmp_path / "group" / "three")
    folder(tmp_path / ".envs" / "four")

    found = sorted(path for group in served_below(tmp_path) for path in group)

    assert found == ["group/three", "group/two", "one"]


def huggingface(directory: Path, extra: dict[str, Any]) -> Archive:
    parameters = {"extra": extra}
    return open_directory(folder(directory, implementation=HUGGING_FACE, parameters=parameters))


def test_hugging_face_options_are_checked(tmp_path: Path) -> None:
    archive = huggingface(tmp_path, {"task": "fill-mask", "batchsize": 2, "top": 1})

    first, second = archive.config.warnings
    assert "$.parameters.extra.batchsize: unknown key, did you mean batch_size?" in first
    assert "$.parameters.extra.top: is no key of this runtime" in second
    assert archive.signature is not None
    assert [output.name for output in archive.signature.outputs] == ["output"]
    assert not archive.config.async_communication


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({}, "$.parameters.extra.task: expected a task"),
        ({"task": "fill-mask", "framework": "tf"}, '$.parameters.extra.framework: expected "pt"'),
        ({"task": "fill-mask", "batch_size": 0}, "$.parameters.extra.batch_size: expected int >="),
        ({"task": "fill-mask", "optimum_model": "yes"}, "optimum_model: expected true or false"),
    ],
)
def test_wrong_hugging_face_options_are_refused(
    tmp_path: Path, extra: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        huggingface(tmp_path, extra)

    assert named in str(caught.value)


def test_the_environment_completes_hugging_face_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLSERVER_MODEL_HUGGINGFACE_TASK", "fill-mask")
    monkeypatch.setenv("MLSERVER_MODEL_HUGGINGFACE_OPTIMUM_MODEL", "true")
    extra = huggingface(tmp_path, {}).config.raw["mlserver"]["parameters"]["extra"]

    assert extra == {"task": "fill-mask", "optimum_model": True}
