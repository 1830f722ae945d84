"""Specifications of workflows: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from marserve.archiver.errors import ConfigError
from marserve.archiver.workflow import Node, WorkflowSpec, load_workflow, parse_workflow

CHAIN = """
models:
  min-workers: 1
  max-workers: 4
  batch-size: 3
  max-batch-delay: 5000
  retry-attempts: 3
  timeout-ms: 5000
  m1:
    url: model1.mar
    max-workers: 2
    batch-size: 4
  m2:
    url: model2.mar
dag:
  pre: [m1]
  m1: [m2]
  m2: [post]
"""


def parse(text: str) -> WorkflowSpec:
    return parse_workflow(yaml.safe_load(text))


def test_settings_of_a_model_go_before_those_of_all() -> None:
    nodes = parse(CHAIN).nodes

    assert nodes["m1"] == Node("m1", "model1.mar", 1, 2, 4, 5000, 3, 5000)
    assert nodes["m2"] == Node("m2", "model2.mar", 1, 4, 3, 5000, 3, 5000)


def test_settings_of_all_count_wherever_they_stand() -> None:
    spec = parse("models: {m: {url: m.mar}, batch-size: 8}\ndag: {m: []}")

    assert spec.nodes["m"].batch_size == 8


def test_nodes_that_are_no_models_are_functions() -> None:
    node = parse(CHAIN).nodes["pre"]

    assert (node.url, node.max_workers, node.batch_size, node.max_batch_delay_ms) == (None, 1, 1, 0)


def test_the_graph() -> None:
    spec = parse("dag: {a: [b, c], b: [d], c: [d, e]}")

    assert spec.start == "a"
    assert spec.leaves == ["d", "e"] or spec.leaves == ["e", "d"]
    assert sorted(spec.predecessors("d")) == ["b", "c"]
    names = list(spec.nodes)
    assert all(
        names.index(a) < names.index(b) for a, after in spec.successors.items() for b in after
    )


def test_a_single_successor_needs_no_list() -> None:
    assert parse("dag: {a: b}").successors == {"a": ("b",), "b": ()}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "$: expected a mapping, got list"),
        ("models: {}", "$.dag: expected a mapping, got nothing"),
        ("dag: {}", "$.dag: expected a mapping of nodes, got an empty one"),
        ("dag: {a: [b]}\nnodes: {}", "$: unknown key 'nodes' (there are models and dag)"),
        ("dag: {a: [b], b: [c], c: [a]}", "$.dag: has a cycle: "),
        ("dag: {a: [a]}", "$.dag: has a cycle: a -> a"),
        ("dag: {a: [c], b: [c]}", "$.dag: expected one start node, got a, b"),
        ("dag: {a: [b, b]}", "$.dag.a: names a node twice"),
        ("dag: {a: ['b c']}", "$.dag.a: expected the name of a node"),
        ("dag: {a: [1]}", "$.dag.a: expected the name of a node"),
        (
            "models: {m: {}}\ndag: {m: []}",
            "$.models.m.url: expected the name of an archive, got None",
        ),
        ("models: {m: x.mar}\ndag: {m: []}", "$.models.m: expected a mapping, got 'x.mar'"),
        ("models: {batchsize: 2}\ndag: {m: []}", "(did you mean batch-size?)"),
        ("models: {m: {url: a, workers: 2}}\ndag: {m: []}", "$.models.m: unknown key 'workers'"),
        (
            "models: {batch-size: 0}\ndag: {m: []}",
            "$.models.batch-size: expected an integer >= 1, got 0",
        ),
        (
            "models: {m: {url: a, timeout-ms: soon}}\ndag: {m: []}",
            "$.models.m.timeout-ms: expected",
        ),
        (
            "models: {m: {url: a, min-workers: 3, max-workers: 2}}\ndag: {m: []}",
            "less than min-workers, 3",
        ),
        ("models: {m: {url: a}}\ndag: {n: []}", "$.models.m: the model is not in the dag"),
        (f"dag: {{s: {[f'n{n}' for n in range(64)]}}}", "$.dag: 65 nodes, there can be 64"),
        (
            "models: {m: {url: a, retry-attempts: 101}}\ndag: {m: []}",
            "$.models.m.retry-attempts: expected an integer <= 100, got 101",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"^workflow.yaml: \$") as caught:
        parse(text)

    assert words in str(caught.value)


def test_a_cycle_is_shown_in_the_direction_of_the_data() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("dag: {a: [b], b: [c], c: [b]}")

    assert any(each in str(caught.value) for each in ("b -> c -> b", "c -> b -> c"))


@pytest.mark.parametrize("data", [b"dag: [", b"\xff\xfe\x00", b"a: &x [*x]"])
def test_files_that_cannot_be_read(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(data)

    with pytest.raises(ConfigError, match=r"^spec.yaml: "):
        load_workflow(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spec.yaml: cannot be read: No such file"):
        load_workflow(tmp_path / "spec.yaml")


def test_any_yaml_is_read_or_refused(tmp_path: Path) -> None:
    values: list[Any] = [None, 1, "x", [], {}, {"a": None}, {"dag": 3}, {"models": [], "dag": {}}]
    for value in values:
        with pytest.raises(ConfigError):
            parse_workflow(value)
