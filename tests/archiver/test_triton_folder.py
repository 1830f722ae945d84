"""Triton's model folders read as archives: versions, files, tensors, settings, ensembles."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.triton_models import add_onnx

from marserve.archiver.errors import ArchiveError, ConfigError, MarserveError
from marserve.archiver.foreign import format_of, served_below
from marserve.archiver.onnx_file import onnx_tensors
from marserve.archiver.unpack import Archive, open_directory

TENSORS = """
input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_STRING dims: [ 1 ] }
"""


def make(
    store: Path, name: str, config: str | None, *versions: str, file: str = "model.py"
) -> Path:
    folder = store / name
    folder.mkdir(parents=True)
    for version in versions:
        (folder / version).mkdir()
        if file:
            (folder / version / file).touch()
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    return folder


def opened(folder: Path, config: str, **more: str) -> Archive:
    return open_directory(make(folder, "m", config, "1", **more))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", ["10"]),
        ("version_policy { latest { num_versions: 2 } }", ["10", "3"]),
        ("version_policy { all { } }", ["10", "3", "1"]),
        ("version_policy { specific { versions: [ 3, 7 ] } }", ["3"]),
    ],
)
def test_the_versions_of_the_policy_the_highest_first(
    tmp_path: Path, policy: str, expected: list[str]
) -> None:
    folder = make(tmp_path, "m", f'backend: "python" {policy}', "1", "3", "10", "0", "01", "x")

    assert served_below(folder) == [expected]
    assert open_directory(folder).manifest.model.model_version == expected[0]
    assert open_directory(folder / "1").manifest.model.model_version == "1"


def test_a_repository_in_the_store_beside_other_models(tmp_path: Path) -> None:
    make(tmp_path / "deep" / "repo", "a", None, "1")
    make(tmp_path / "deep" / "repo", "b", "max_batch_sise: 1", "2")
    make(tmp_path, "own", None)

    assert served_below(tmp_path) == [["deep/repo/a/1"], ["deep/repo/b"]]
    assert format_of(tmp_path / "own") is None
    with pytest.raises(ConfigError, match="max_batch_sise"):
        open_directory(tmp_path / "deep" / "repo" / "b")


def test_the_settings_say_what_the_configuration_says(tmp_path: Path) -> None:
    archive = opened(
        tmp_path,
        """backend: "python" max_batch_size: 8
        dynamic_batching {
          preferred_batch_size: [ 8, 4 ] max_queue_delay_microseconds: 1500
          priority_levels: 3 default_priority_level: 2
          default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 9 }
        }
        instance_group [ { kind: KIND_GPU count: 2 gpus: [ 1, 3 ] } ]
        response_cache { enable: true }"""
        + TENSORS,
    )
    config = archive.config

    assert (config.batch_size, config.max_batch_delay) == (8, 2)
    assert (config.min_workers, config.max_workers, config.device_ids) == (4, 4, [1, 3])
    assert (config.priority_levels, config.default_priority_level) == (3, 2)
    assert config.dynamic_batching is not None
    assert config.dynamic_batching.preferred_batch_size == [4, 8]
    assert config.dynamic_batching.max_queue_delay_microseconds == 1500
    assert config.dynamic_batching.default_queue_policy.timeout_action == "delay"
    assert config.response_cache


def test_requests_are_not_joined_without_dynamic_batching(tmp_path: Path) -> None:
    archive = opened(tmp_path, 'backend: "python" max_batch_size: 8' + TENSORS)

    assert archive.config.batch_size == 1
    assert archive.signature is not None
    assert archive.signature.rows_max == 8
    assert archive.signature.inputs[0].shape == (-1, 2)
    assert archive.signature.outputs[0].datatype == "BYTES"


def test_sequences_go_to_the_worker_that_has_their_state(tmp_path: Path) -> None:
    config = opened(
        tmp_path,
        """backend: "python" max_batch_size: 4
        sequence_batching { max_sequence_idle_microseconds: 5000000 oldest {
        max_candidate_sequences: 6 } } instance_group { count: 2 }""",
    ).config

    assert (config.sequence_batching, config.max_num_sequence) == (True, 12)
    assert config.sequence_max_idle_msec == 5000


def test_an_onnx_file_says_what_the_configuration_leaves_out(tmp_path: Path) -> None:
    add_onnx(tmp_path / "sum", (1,))

    inputs, outputs = onnx_tensors(tmp_path / "sum" / "1" / "model.onnx")
    archive = open_directory(tmp_path / "sum")

    shapes = [(each.name, each.datatype, each.shape) for each in (*inputs, *outputs)]
    assert shapes == [(name, "FP32", (-1, 2)) for name in ("A", "B", "Y")]
    assert archive.signature is not None
    assert archive.signature.rows_max == 4
    assert archive.config.batch_size == 4
    assert archive.config.raw["triton"]["config"]["backend"] == "onnxruntime"


def test_a_broken_onnx_file_is_refused(tmp_path: Path) -> None:
    add_onnx(tmp_path / "sum", (1,))
    path = tmp_path / "sum" / "1" / "model.onnx"
    whole = path.read_bytes()
    for data in (b"", whole[:-20], b"\xff" * 40, b"no model at all"):
        path.write_bytes(data)
        with pytest.raises(ArchiveError, match=r"model\.onnx: is no ONNX model"):
            open_directory(tmp_path / "sum")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('backend: "tensorrt"', "line 1: backend: 'tensorrt' is not served"),
        ('name: "other" backend: "python"', "line 1: name: is 'other', but the model's folder is"),
        ('backend: "python"\ninput { name: "A" dims: 1 }', "line 2: input[0].data_type: expected"),
        (
            'backend: "python"\ninput { name: "A" data_type: TYPE_INT8 }',
            "line 2: input[0].dims: expected at least one dimension",
        ),
        (
            'backend: "python" max_batch_size: 2\ndynamic_batching { preferred_batch_size: 4 }',
            "line 2: dynamic_batching.preferred_batch_size: expected 1 to max_batch_size",
        ),
        (
            'backend: "python"\nsequence_batching { iterative_sequence: true }',
            "line 2: sequence_batching.iterative_sequence: is not served",
        ),
        (
            'backend: "python"\noutput { name: "A" data_type: TYPE_INT8 dims: 1'
            ' label_filename: "../l" }',
            "line 2: output[0].label_filename: the model's folder has no file",
        ),
        (
            'platform: "ensemble"\nensemble_scheduling { step { model_name: "a" input_map {'
            ' key: "X" value: "nowhere" } output_map { key: "Y" value: "Y" } } }',
            "line 2: ensemble_scheduling.step[0].input_map: tensor 'nowhere' comes from no step",
        ),
        ('platform: "ensemble"', "ensemble_scheduling.step: expected at least one step"),
        ('backend: "python" default_model_filename: "../x.py"', "line 1: default_model_filename"),
        (
            'backend: "python" model_transaction_policy { decoupled: true }\nresponse_cache {'
            " enable: true }",
            "line 2: response_cache: answers of a decoupled model are not kept",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_by_line_and_key(
    tmp_path: Path, config: str, message: str
) -> None:
    with pytest.raises(MarserveError) as caught:
        opened(tmp_path, config)

    assert f"config.pbtxt: {message}" in str(caught.value)


def test_steps_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    steps = [
        f'{{ model_name: "{name}" input_map {{ key: "X" value: "{source}" }}'
        f' output_map {{ key: "Y" value: "{target}" }} }}'
        for name, source, target in (("a", "t2", "t1"), ("b", "t1", "t2"))
    ]
    config = f'platform: "ensemble"\nensemble_scheduling {{ step [ {", ".join(steps)} ] }}'

    with pytest.raises(ConfigError, match="steps wait for each other: a, b"):
        opened(tmp_path, config, file="")


def test_a_folder_without_a_version_or_file_says_what_is_missing(tmp_path: Path) -> None:
    empty = make(tmp_path, "empty", 'backend: "python"')
    with pytest.raises(ArchiveError, match="empty: no version folder to serve"):
        open_directory(empty)
    bare = make(tmp_path, "bare", 'backend: "python"', "1", file="")
    with pytest.raises(ArchiveError, match=r"bare: version 1 has no file model\.py"):
        open_directory(bare)


def test_the_digest_is_that_of_the_version_and_the_model(tmp_path: Path) -> None:
    folder = make(tmp_path, "m", 'backend: "python"', "1", "2")
    before = [open_directory(folder / version).digest for version in ("1", "2")]
    (folder / "2" / "more.txt").write_text("x")

    after = [open_directory(folder / version).digest for version in ("1", "2")]

    assert before[0] == after[0]
    assert before[1] != after[1]
