"""A model's own view of its configuration: what ``auto_complete_config`` gets and completes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

_REQUIRED = ("name", "data_type", "dims")
_OPTIONAL = ("optional", "reshape", "format", "allow_ragged_batch", "label_filename")


class ModelConfig:
    """A configuration that a model may complete; what it says already must not be contradicted.

    Args:
        config: As plain values.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config: dict[str, Any] = copy.deepcopy(dict(config))

    def as_dict(self) -> dict[str, Any]:
        """Returns the configuration as it is now."""
        return self._config

    def add_input(self, tensor: Mapping[str, Any]) -> None:
        """Adds an input, or completes one of the same name.

        Raises:
            ValueError: If a property is missing, unknown or contradicts what is there.
        """
        self._add("input", tensor)

    def add_output(self, tensor: Mapping[str, Any]) -> None:
        """Adds an output; else like ``add_input``."""
        self._add("output", tensor)

    def set_max_batch_size(self, size: int) -> None:
        """Says how many rows a batch may have; one that is set stays, if it is smaller."""
        given = self._config.get("max_batch_size", 0)
        if given and given > size:
            raise ValueError(f"max_batch_size is {given}, more than the model's {size}")
        if not given:
            self._config["max_batch_size"] = int(size)

    def set_dynamic_batching(self) -> None:
        """Switches batching on, unless it is there, or sequences are batched.

        Raises:
            ValueError: If the model has sequences or is an ensemble.
        """
        if {"sequence_batching", "ensemble_scheduling"} & self._config.keys():
            raise ValueError("the configuration has another way of scheduling")
        self._config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, policy: Mapping[str, Any]) -> None:
        """Says whether the model is decoupled.

        Raises:
            ValueError: If the policy is wrong, or contradicts the configuration.
        """
        if unknown := policy.keys() - {"decoupled"}:
            raise ValueError(f"model transaction policy: unknown {', '.join(map(str, unknown))}")
        if "decoupled" not in policy:
            raise ValueError("model transaction policy: expected 'decoupled'")
        given = self._config.get("model_transaction_policy")
        if given and given.get("decoupled") != policy["decoupled"]:
            raise ValueError("decoupled: the model and its configuration disagree")
        self._config["model_transaction_policy"] = {"decoupled": bool(policy["decoupled"])}

    def _add(self, key: str, tensor: Mapping[str, Any]) -> None:
        if unknown := tensor.keys() - {*_REQUIRED, *_OPTIONAL}:
            raise ValueError(f"{key}: unknown property {', '.join(map(str, unknown))}")
        if missing := [name for name in _REQUIRED if name not in tensor]:
            raise ValueError(f"{key}: property {missing[0]!r} is missing")
        tensors = self._config.setdefault(key, [])
        for known in tensors:
            if known["name"] != tensor["name"]:
                continue
            for name, value in tensor.items():
                given = known.get(name)
                if name in _REQUIRED and given and list_of(given) != list_of(value):
                    raise ValueError(f"{key} {tensor['name']!r}: {name} is {given}, not {value}")
                known[name] = value
            return
        tensors.append(dict(tensor))


def list_of(value: Any) -> Any:
    """Returns sequences as lists, so that they compare."""
    return list(value) if isinstance(value, (list, tuple)) else value


def config_by_name(config: Mapping[str, Any], key: str, name: str) -> dict[str, Any] | None:
    """Returns what a configuration says of an input or output; None if it does not know it."""
    found: dict[str, Any] | None = next(
        (each for each in config.get(key, []) if each["name"] == name), None
    )
    return found
