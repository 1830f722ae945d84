from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.archiver.errors import ConfigError
from marserve.archiver.model_config import ModelConfig, load_model_config, parse_model_config

EXAMPLE = """
minWorkers: 1
maxWorkers: 2
batchSize: 4
maxBatchDelay: 50
responseTimeout: 30
deviceType: gpu
deviceIds: [0, 2]
parallelType: tp
torchrun:
  nproc-per-node: 2
  OMP_NUMBER_THREADS: 1
sequenceMaxIdleMSec: 5
sequenceTimeoutMSec: 6
useVenv: yes
handler:
  model_name: bert-base-uncased
  mode: sequence_classification
  do_lower_case: True
  num_labels: 2
  save_mode: pretrained
  max_length: 150
  captum_explanation: True
  embedding_name: bert
  BetterTransformer: False
  model_parallel: False
  my_own: {deep: [1, 2.5, null]}
pt2:
  compile: {enable: True, backend: inductor, mode: reduce-overhead}
mine: kept
"""


def load(tmp_path: Path, text: str, **options: bool) -> ModelConfig:
    path = tmp_path / "model-config.yaml"
    path.write_text(text)
    return load_model_config(path, **options)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return str(caught.value)


def test_a_default_priority_needs_its_level(tmp_path: Path) -> None:
    assert load(tmp_path, "priorityLevels: 3\ndefaultPriorityLevel: 3").priority_levels == 3
    for text in ("priorityLevels: 3\ndefaultPriorityLevel: 4", "defaultPriorityLevel: 1"):
        assert "$.defaultPriorityLevel" in refusal(tmp_path, text)


def test_the_published_example_is_read_whole(tmp_path: Path) -> None:
    config = load(tmp_path, EXAMPLE)

    assert (config.min_workers, config.max_workers, config.batch_size) == (1, 2, 4)
    assert config.device_ids == [0, 2]
    assert config.torchrun is not None
    assert (config.torchrun.nproc_per_node, config.torchrun.omp_number_threads) == (2, 1)
    assert (config.sequence_max_idle_msec, config.sequence_timeout_msec) == (5, 6)
    assert config.use_venv is True
    assert config.handler.mode == "sequence_classification"
    assert config.handler.better_transformer is False
    assert config.handler.extra == {"my_own": {"deep": [1, 2.5, None]}}
    assert config.pt2 is not None
    assert config.pt2.compile
    assert config.pt2.options == {"backend": "inductor", "mode": "reduce-overhead"}
    assert config.raw == yaml.safe_load(EXAMPLE)
    assert config.warnings == []
    assert config.startup_timeout is None


@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n", "null\n"])
def test_an_empty_file_is_an_empty_configuration(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == ModelConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torchrun: {nproc-per-node: 0}", "$.torchrun.nproc-per-node: expected int >= 1, got 0"),
        ("batchSize: -1", "$.batchSize: expected int >= 1, got -1"),
        ("batchSize: four", "$.batchSize: expected int >= 1, got 'four'"),
        ("batchSize: true", "$.batchSize: expected int >= 1, got true"),
        (
            "batchSize: 99999999999",
            "$.batchSize: expected int from 1 to 2147483647, got 99999999999",
        ),
        ("useVenv: 1", "$.useVenv: expected true or false, got 1"),
        ("deviceType: gpus", "expected one of cpu, gpu (did you mean gpu?), got 'gpus'"),
        ("deviceIds: [0, x]", "$.deviceIds: expected a list of int >= 0, got [0, 'x']"),
        ("deviceIds: 0", "$.deviceIds: expected a list of int >= 0, got 0"),
        ("torchrun: 2", "$.torchrun: expected a mapping, got 2"),
        ("handler: x", "$.handler: expected a mapping, got 'x'"),
        ("handler: {max_length: 0}", "$.handler.max_length: expected int >= 1, got 0"),
        (
            "handler: {explain: {n_steps: a}}",
            "$.handler.explain.n_steps: expected int >= 1, got 'a'",
        ),
        (
            "handler: {mode: sequence_clasification}",
            "(did you mean sequence_classification?), got 'sequence_clasification'",
        ),
        ("pt2: 3", "$.pt2: expected the name of a backend or a mapping, got 3"),
        ("pt2: {compile: {enable: 1}}", "$.pt2.compile.enable: expected true or false, got 1"),
        (
            "pt2: {compile: {enable: true, mode: fast}}",
            "$.pt2.compile.mode: expected one of default",
        ),
        (
            "minWorkers: 4\nmaxWorkers: 2",
            "$.maxWorkers: expected int >= minWorkers, which is 4, got 2",
        ),
        ("parallelLevel: 2\ntorchrun: {nproc-per-node: 4}", "expected the same as parallelLevel"),
        ("torchrun: {nnodes: 2}", "expected 1: all ranks of a worker run on the server's machine"),
        ("pt2: {compile: {enable: true}, export: {aot_compile: true}}", "expected either"),
        ("[1, 2]", "expected a mapping of keys, got list"),
        ("a: [1", "cannot be read as YAML"),
        ("a: 2020-13-45", "cannot be read as YAML"),
        ("a: !!python/object/apply:os.system [x]", "cannot be read as YAML"),
        ("1: x", "expected keys that are texts, got 1"),
        ("a: &a [*a]", "levels"),
        ("a: 99999999999999999999999999", "expected numbers, texts and the like"),
        (r'a: "\ud800"', "expected numbers, texts and the like"),
        ("a: " + "[" * 5000, "cannot be read as YAML"),
    ],
)
def test_an_error_names_file_key_and_what_would_be_right(
    tmp_path: Path, text: str, message: str
) -> None:
    found = refusal(tmp_path, text)

    assert found.startswith("model-config.yaml: ")
    assert message in found


def test_aliases_by_the_million_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]

    assert "more than 100000 values" in refusal(tmp_path, "\n".join(lines))


def test_a_slip_of_a_known_key_is_kept_and_warned_of(tmp_path: Path) -> None:
    text = "batch_size: 3\nminWorker: 1\nmine: 1\ntorchrun: {nproc_per_node: 2}\n"
    config = load(tmp_path, text + "handler: {max_lenght: 3}")

    assert config.batch_size is None
    assert config.raw["batch_size"] == 3
    assert sorted(config.warnings) == [
        "model-config.yaml: $.batch_size: unknown key, did you mean batchSize?",
        "model-config.yaml: $.handler.max_lenght: unknown key, did you mean max_length?",
        "model-config.yaml: $.minWorker: unknown key, did you mean minWorkers?",
        "model-config.yaml: $.torchrun.nproc_per_node: unknown key, did you mean nproc-per-node?",
    ]


def test_another_handler_may_use_the_same_keys_in_its_own_way(tmp_path: Path) -> None:
    text = "handler: {mode: fast, batch_size: auto, max_length: 7, model: x}"
    config = load(tmp_path, text, strict_handler=False)

    assert config.handler.mode is None
    assert config.handler.max_length == 7
    assert config.raw["handler"]["batch_size"] == "auto"
    assert len(config.warnings) == 2
    assert load(tmp_path, "handler: [1]", strict_handler=False).raw == {"handler": [1]}


@pytest.mark.parametrize(
    ("section", "compiled", "options", "packaged"),
    [
        ("inductor", True, {"backend": "inductor"}, False),
        (
            {"backend": "inductor", "dynamic": True},
            True,
            {"backend": "inductor", "dynamic": True},
            False,
        ),
        ({"compile": {"enable": True, "mode": "default"}}, True, {"mode": "default"}, False),
        ({"compile": {"enable": False, "backend": "x"}}, False, {"backend": "x"}, False),
        ({"export": {"aot_compile": True}}, False, {}, True),
        ({}, False, {}, False),
    ],
)
def test_every_form_of_pt2_is_understood(
    section: object, compiled: bool, options: dict[str, Any], packaged: bool
) -> None:
    pt2 = parse_model_config({"pt2": section}).pt2

    assert pt2 is not None
    assert (pt2.compile, pt2.options, pt2.aot_compile) == (compiled, options, packaged)


def test_what_has_no_effect_is_warned_of() -> None:
    config = parse_model_config({"parallelType": "tp", "pt2": {"compile": {"backend": "inductor"}}})

    assert [warning.split(": ")[1] for warning in config.warnings] == [
        "$.pt2.compile",
        "$.parallelType",
    ]


def test_keys_named_like_our_own_fields_are_just_unknown_keys() -> None:
    config = parse_model_config({"raw": 1, "warnings": 2, "handler": {"extra": 3}})

    assert config.raw == {"raw": 1, "warnings": 2, "handler": {"extra": 3}}
    assert config.warnings == []
    assert config.handler.extra == {"extra": 3}


KEYS = st.sampled_from(
    [
        "minWorkers",
        "maxWorkers",
        "batchSize",
        "deviceIds",
        "torchrun",
        "handler",
        "pt2",
        "useVenv",
        "mode",
        "explain",
        "compile",
        "enable",
        "nproc-per-node",
        "micro_batching",
        "parallelism",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(values=st.dictionaries(KEYS | st.text(), VALUES, max_size=6), strict=st.booleans())
def test_any_values_give_a_configuration_or_a_config_error(
    values: dict[str, Any], strict: bool
) -> None:
    try:
        config = parse_model_config(values, strict_handler=strict)
    except ConfigError:
        pass
    else:
        msgspec.msgpack.encode(config.raw)
        assert config.batch_size is None or config.batch_size >= 1


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="a:-[]{}&*!|>'\"#%@ \n\t0123.,?", max_size=60))
def test_any_text_gives_a_configuration_or_a_config_error(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text)
    with contextlib.suppress(ConfigError):
        load_model_config(path)
