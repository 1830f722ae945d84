"""The steps of a Triton ensemble: which models, and which tensors go from one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marserve.archiver.triton_config import TritonConfig


@dataclass(frozen=True, slots=True)
class Step:
    """One model of an ensemble.

    Args:
        model: Its name.
        version: Empty for the one that answers by default.
        inputs: Tensor of the ensemble for each input of the model.
        outputs: Tensor of the ensemble for each output of the model that is used.
    """

    model: str
    version: str
    inputs: dict[str, str]
    outputs: dict[str, str]


def read_steps(config: TritonConfig) -> list[Step]:
    """Returns the steps of an ensemble, each after those whose tensors it takes.

    Raises:
        ConfigError: If a step lacks something, a tensor comes from nowhere or from two places, or
            steps wait for each other.
    """
    given = config.plain.get("ensemble_scheduling", {}).get("step", [])
    if not given:
        config.refuse("ensemble_scheduling.step", "expected at least one step")
    steps = [_step(config, number, each) for number, each in enumerate(given)]
    sources = {each["name"]: "the request" for each in config.plain.get("input", [])}
    for number, step in enumerate(steps):
        for tensor in step.outputs.values():
            if tensor in sources:
                place = f"ensemble_scheduling.step[{number}].output_map"
                config.refuse(place, f"tensor {tensor!r} comes from {sources[tensor]} already")
            sources[tensor] = f"step {number} ({step.model})"
    for each in config.plain.get("output", []):
        if each["name"] not in sources:
            config.refuse("output", f"no step has the tensor {each['name']!r} in its output_map")
    _check_sources(config, steps, sources)
    return _ordered(config, steps)


def _check_sources(config: TritonConfig, steps: list[Step], sources: dict[str, str]) -> None:
    for number, step in enumerate(steps):
        for tensor in step.inputs.values():
            if tensor not in sources:
                config.refuse(
                    f"ensemble_scheduling.step[{number}].input_map",
                    f"tensor {tensor!r} comes from no step and is no input of the ensemble",
                )


def _step(config: TritonConfig, number: int, given: dict[str, Any]) -> Step:
    place = f"ensemble_scheduling.step[{number}]"
    if not given.get("model_name"):
        config.refuse(f"{place}.model_name", "expected the name of a model")
    if given["model_name"] == config.plain.get("name"):
        config.refuse(f"{place}.model_name", "an ensemble cannot be a step of itself")
    for key in ("input_map", "output_map"):
        if not given.get(key):
            config.refuse(f"{place}.{key}", "expected at least one tensor")
    version = given.get("model_version", -1)
    return Step(
        given["model_name"],
        str(version) if version > 0 else "",
        given["input_map"],
        given["output_map"],
    )


def _ordered(config: TritonConfig, steps: list[Step]) -> list[Step]:
    made = {tensor for step in steps for tensor in step.outputs.values()}
    ordered: list[Step] = []
    there: set[str] = set()
    left = list(steps)
    while left:
        able = [s for s in left if all(t in there or t not in made for t in s.inputs.values())]
        if not able:
            names = ", ".join(step.model for step in left)
            config.refuse("ensemble_scheduling.step", f"steps wait for each other: {names}")
        for step in able:
            ordered.append(step)
            there.update(step.outputs.values())
        left = [step for step in left if step not in able]
    return ordered
