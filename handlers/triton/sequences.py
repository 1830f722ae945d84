"""Sequences of a Triton model: the tensors that tell it of them, and the state kept between."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marserve.handlers.triton.messages import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from marserve.handlers.triton.tensors import deserialize_bytes_tensor, triton_string_to_numpy

_TYPES = {"int32": np.int32, "fp32": np.float32, "bool": np.bool_}
_STATE_FOLDER = "initial_state"
_DEFAULT_IDLE_S = 1.0

Arrays = dict[str, Any]


class Sequences:
    """Adds to requests what ``sequence_batching`` declares, and takes states out of answers.

    The queue sends all requests of a sequence to one worker, one at a time.

    Args:
        config: Of the model.
        folder: Of the model; files of initial states are in its folder ``initial_state``.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        section = config.get("sequence_batching", {})
        self._controls = section.get("control_input", [])
        self._declared = section.get("state", [])
        self._folder = folder
        self._batched = bool(config.get("max_batch_size"))
        idle_us = section.get("max_sequence_idle_microseconds", 0)
        self._idle_s = idle_us / 1e6 or _DEFAULT_IDLE_S
        self._states: dict[int | str, tuple[float, Arrays]] = {}

    def prepared(self, request: InferenceRequest, arrays: Arrays) -> Arrays:
        """Returns the inputs with controls and states."""
        if not self._controls and not self._declared:
            return arrays
        begins = bool(request.flags() & SEQUENCE_START)
        found = dict(arrays)
        rows = next((array.shape[0] for array in arrays.values()), 1) if self._batched else 0
        for control in self._controls:
            found[control["name"]] = _control(control["control"][0], request, rows)
        if self._declared:
            found |= self._state(request.correlation_id(), begins)
        return found

    def finished(self, request: InferenceRequest, outputs: Arrays) -> Arrays:
        """Returns the outputs without states, which are kept unless the sequence is over."""
        if not self._declared:
            return outputs
        id, now = request.correlation_id(), time.monotonic()
        names = {each["output_name"]: each["input_name"] for each in self._declared}
        self._states.pop(id, None)
        if not request.flags() & SEQUENCE_END:
            kept = {names[name]: array for name, array in outputs.items() if name in names}
            self._states[id] = now, kept
        return {name: array for name, array in outputs.items() if name not in names}

    def _state(self, id: int | str, begins: bool) -> Arrays:
        now = time.monotonic()
        for old in [i for i, (at, _) in self._states.items() if now - at > 2 * self._idle_s]:
            if old != id:
                del self._states[old]
        if begins or id not in self._states:
            return {each["input_name"]: self._initial(each) for each in self._declared}
        return self._states[id][1]

    def _initial(self, state: Mapping[str, Any]) -> Any:
        given = next(iter(state.get("initial_state", [])), None)
        dtype = triton_string_to_numpy(state["data_type"])
        dims = [max(1, size) for size in (given or state).get("dims", [])]
        lead = [1] if self._batched else []
        if given is not None and given.get("data_file"):
            data = (self._folder / _STATE_FOLDER / Path(given["data_file"]).name).read_bytes()
            texts = dtype is np.object_
            array = deserialize_bytes_tensor(data) if texts else np.frombuffer(data, dtype)
            return array.reshape([*lead, *dims])
        if dtype is np.object_:
            return np.full([*lead, *dims], b"", object)
        return np.zeros([*lead, *dims], dtype)


def _control(control: Mapping[str, Any], request: InferenceRequest, rows: int) -> Any:
    shape = [rows, 1] if rows else [1]
    kind = control["kind"]
    if kind == "CONTROL_SEQUENCE_CORRID":
        dtype = triton_string_to_numpy(control["data_type"])
        id = request.correlation_id()
        return np.full(shape, str(id).encode() if dtype is np.object_ else id, dtype)
    holds = {
        "CONTROL_SEQUENCE_START": bool(request.flags() & SEQUENCE_START),
        "CONTROL_SEQUENCE_END": bool(request.flags() & SEQUENCE_END),
        "CONTROL_SEQUENCE_READY": True,
    }[kind]
    for name, dtype in _TYPES.items():
        if values := control.get(f"{name}_false_true"):
            return np.full(shape, values[int(holds)], dtype)
    return np.full(shape, int(holds), np.int32)
