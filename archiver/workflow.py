"""The specification of a workflow: models and functions as the nodes of a graph without cycles.

The keys are TorchServe's. ``models`` holds settings for all models and, under any other key, one
model with settings of its own; ``dag`` maps a node to those that get its result. A node that is no
model is a function of the workflow's handler file.
"""

from __future__ import annotations

import graphlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marserve.archiver.errors import ConfigError
from marserve.archiver.plain_file import read_yaml
from marserve.archiver.schema import check_plain, nearest

MAX_NODES = 64
"""Each node is at least one worker process."""
MAX_ATTEMPTS = 100
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]*")
_SETTINGS = {
    "min-workers": ("min_workers", 1),
    "max-workers": ("max_workers", 1),
    "batch-size": ("batch_size", 1),
    "max-batch-delay": ("max_batch_delay_ms", 0),
    "retry-attempts": ("attempts", 1),
    "timeout-ms": ("timeout_ms", 1),
}


@dataclass(frozen=True, slots=True)
class Node:
    """One step.

    Args:
        name: Unique in the workflow.
        url: The model's archive; None for a function of the handler file.
        attempts: How often it is tried before the workflow fails, 1 for no second time.
        timeout_ms: Limit of one attempt, queueing included.
    """

    name: str
    url: str | None = None
    min_workers: int = 1
    max_workers: int = 1
    batch_size: int = 1
    max_batch_delay_ms: int = 50
    attempts: int = 1
    timeout_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class WorkflowSpec:
    """A checked specification.

    Args:
        nodes: By name; each comes after those whose results it needs.
        successors: By name; each node is there.
    """

    nodes: dict[str, Node]
    successors: dict[str, tuple[str, ...]]

    @property
    def start(self) -> str:
        """The one node that gets the request itself."""
        return next(iter(self.nodes))

    @property
    def leaves(self) -> list[str]:
        """The nodes whose results are the answer."""
        return [name for name, after in self.successors.items() if not after]

    def predecessors(self, name: str) -> list[str]:
        """Returns the nodes whose results a node needs."""
        return [before for before, after in self.successors.items() if name in after]


def load_workflow(path: Path) -> WorkflowSpec:
    """Reads a specification file.

    Raises:
        ConfigError: If it cannot be read or is wrong.
    """
    return parse_workflow(read_yaml(path), path.name)


def parse_workflow(plain: object, where: str = "workflow.yaml") -> WorkflowSpec:
    """Checks plain values.

    Args:
        plain: The content of the file.
        where: What to call the file in messages.

    Raises:
        ConfigError: If a key or value is wrong, or the graph has a cycle or not exactly one start.
    """
    top = _mapping(plain, where, "$")
    check_plain(top, where)
    if unknown := top.keys() - {"models", "dag"}:
        raise ConfigError(where, f"$: unknown key {min(unknown)!r}", "there are models and dag")
    models = _models(_mapping(top.get("models") or {}, where, "$.models"), where)
    successors = _successors(_mapping(top.get("dag"), where, "$.dag"), where)
    if unused := models.keys() - successors.keys():
        raise ConfigError(where, f"$.models.{min(unused)}: the model is not in the dag")
    if len(successors) > MAX_NODES:
        text = f"$.dag: {len(successors)} nodes, there can be {MAX_NODES}"
        raise ConfigError(where, text, "let one node do what several do, or split the workflow")
    order = _sorted(successors, where)
    nodes = {name: models.get(name, Node(name, max_batch_delay_ms=0)) for name in order}
    return WorkflowSpec(nodes, {name: successors[name] for name in order})


def _models(section: Mapping[str, Any], where: str) -> dict[str, Node]:
    common = {key: value for key, value in section.items() if key in _SETTINGS}
    defaults = _configured(Node(""), common, where, "$.models")
    nodes = {}
    for name, values in section.items():
        if name in _SETTINGS:
            continue
        path = f"$.models.{name}"
        if not isinstance(values, dict):
            meant = nearest(name, list(_SETTINGS))
            hint = f"did you mean {meant}?" if meant else "a model is a mapping with the key url"
            raise ConfigError(where, f"{path}: expected a mapping, got {values!r}", hint)
        url = values.get("url")
        if not isinstance(url, str) or not url:
            raise ConfigError(where, f"{path}.url: expected the name of an archive, got {url!r}")
        own = {key: value for key, value in values.items() if key != "url"}
        node = replace(defaults, name=_checked_name(name, where, path), url=url)
        nodes[name] = _configured(node, own, where, path)
    return nodes


def _configured(node: Node, values: Mapping[str, Any], where: str, path: str) -> Node:
    fields: dict[str, int] = {}
    for key, value in values.items():
        if key not in _SETTINGS:
            hint = f"there are: url, {', '.join(_SETTINGS)}"
            raise ConfigError(where, f"{path}: unknown key {key!r}", hint)
        field, least = _SETTINGS[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            text = f"{path}.{key}: expected an integer >= {least}, got {value!r}"
            raise ConfigError(where, text)
        if key == "retry-attempts" and value > MAX_ATTEMPTS:
            text = f"{path}.{key}: expected an integer <= {MAX_ATTEMPTS}, got {value}"
            raise ConfigError(where, text)
        fields[field] = value
    node = replace(node, **fields)  # type: ignore[arg-type]
    if node.max_workers < node.min_workers and "max_workers" in fields:
        raise ConfigError(where, f"{path}.max-workers: less than min-workers, {node.min_workers}")
    return replace(node, max_workers=max(node.min_workers, node.max_workers))


def _successors(dag: Mapping[str, Any], where: str) -> dict[str, tuple[str, ...]]:
    if not dag:
        raise ConfigError(where, "$.dag: expected a mapping of nodes, got an empty one")
    found: dict[str, tuple[str, ...]] = {}
    for name, after in dag.items():
        path = f"$.dag.{name}"
        listed = after if isinstance(after, list) else [after]
        names = [] if after is None else [_checked_name(each, where, path) for each in listed]
        if len(set(names)) < len(names):
            raise ConfigError(where, f"{path}: names a node twice")
        found[_checked_name(name, where, path)] = tuple(names)
    for name in [each for after in found.values() for each in after]:
        found.setdefault(name, ())
    return found


def _sorted(successors: Mapping[str, tuple[str, ...]], where: str) -> list[str]:
    """Names in an order in which they can run, the start first."""
    needs: dict[str, list[str]] = {name: [] for name in successors}
    for name, after in successors.items():
        for each in after:
            needs[each].append(name)
    try:
        order = list(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise ConfigError(where, f"$.dag: has a cycle: {cycle}") from None
    starts = [name for name in order if not needs[name]]
    if len(starts) != 1:
        raise ConfigError(where, f"$.dag: expected one start node, got {', '.join(starts)}")
    return order


def _mapping(value: object, where: str, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        found = "nothing" if value is None else type(value).__name__
        raise ConfigError(where, f"{path}: expected a mapping, got {found}")
    return {str(key): each for key, each in value.items()}


def _checked_name(name: object, where: str, path: str) -> str:
    if not isinstance(name, str) or not _NODE_NAME.fullmatch(name):
        text = f"{path}: expected the name of a node ({_NODE_NAME.pattern}), got {name!r}"
        raise ConfigError(where, text)
    return name
