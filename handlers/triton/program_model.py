"""Triton models that are programs (ONNX, TorchScript, .pt2, OpenVINO): batches joined by rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.base import pick_device
from marserve.handlers.errors import RequestError
from marserve.handlers.triton.engines import Arrays, open_engine
from marserve.handlers.triton.messages import InferenceRequest
from marserve.handlers.triton.rows import request_of
from marserve.handlers.triton.sequences import Sequences
from marserve.handlers.triton.shapes import Shapes
from marserve.handlers.triton.warm_up import warm_up

KEY = "triton"


class TritonProgram:
    """Runs the requests of a batch together, as far as their tensors can be laid end to end."""

    def initialize(self, context: Any) -> None:
        """Opens the model's file and warms it up.

        Raises:
            HandlerLoadError: If that fails.
        """
        section = context.model_yaml_config[KEY]
        config, folder = section["config"], Path(context.system_properties["model_dir"])
        self._most = config.get("max_batch_size", 0)
        self._shapes, self._sequences = Shapes(config), Sequences(config, folder)
        self._names = {each["name"] for each in config.get("output", [])}
        device_type = context.model_yaml_config.get("deviceType")
        device = pick_device(context.system_properties.get("gpu_id"), device_type)
        self._engine = open_engine(section["backend"], folder / section["file"], device, config)
        warm_up(config, folder, self._warm)

    def handle(self, rows: list[Any], context: Any) -> list[Any]:
        """Returns one dict of arrays a request, or its error."""
        results: list[Any] = [None] * len(rows)
        requests: dict[int, InferenceRequest] = {}
        inputs: dict[int, Arrays] = {}
        for index, row in enumerate(rows):
            try:
                request = request_of(row, context.get_all_request_header(index), self._shapes)
                arrays = {each.name(): each.as_numpy() for each in request.inputs()}
                inputs[index] = self._sequences.prepared(request, arrays)
                requests[index] = request
            except RequestError as error:
                results[index] = error
        for group in self._groups(inputs):
            for index, found in self._run(group, inputs):
                if isinstance(found, Exception):
                    results[index] = found
                    continue
                outputs = self._sequences.finished(requests[index], found)
                results[index] = self._told(outputs)
        return results

    def _told(self, outputs: Arrays) -> Arrays:
        """The declared outputs, in the shapes that clients are told."""
        return {
            name: self._shapes.outwards(name, array)
            for name, array in outputs.items()
            if not self._names or name in self._names
        }

    def _groups(self, inputs: dict[int, Arrays]) -> list[list[int]]:
        """Requests whose tensors agree but for the number of rows."""
        if not self._most:
            return [[index] for index in inputs]
        groups: dict[Any, list[int]] = {}
        for index, arrays in inputs.items():
            key = tuple((name, a.dtype.str, a.shape[1:]) for name, a in sorted(arrays.items()))
            groups.setdefault(key, []).append(index)
        return list(groups.values())

    def _run(
        self, group: list[int], inputs: dict[int, Arrays]
    ) -> Iterator[tuple[int, Arrays | Exception]]:
        if len(group) > 1:
            try:
                yield from self._together(group, inputs)
                return
            except Exception as error:  # the engine's own kinds; each request then runs alone
                print(f"a batch of {len(group)} failed, its requests run one by one: {error}")
        for index in group:
            try:
                yield index, self._engine(inputs[index])
            except Exception as error:
                yield index, error

    def _together(
        self, group: list[int], inputs: dict[int, Arrays]
    ) -> list[tuple[int, Arrays | Exception]]:
        first = inputs[group[0]]
        counts = [next(iter(inputs[index].values())).shape[0] for index in group]
        joined = {name: np.concatenate([inputs[i][name] for i in group]) for name in first}
        outputs = self._engine(joined)
        total = sum(counts)
        if wrong := [n for n, a in outputs.items() if not a.ndim or a.shape[0] != total]:
            raise ValueError(f"output {wrong[0]!r} has not {total} rows")
        ends = np.cumsum(counts)
        return [
            (index, {name: array[end - count : end] for name, array in outputs.items()})
            for index, count, end in zip(group, counts, ends, strict=True)
        ]

    def _warm(self, row: Arrays) -> None:
        arrays = {name: self._shapes.inwards(name, array) for name, array in row.items()}
        try:
            self._engine(self._sequences.prepared(InferenceRequest(), arrays))
        except RequestError as error:
            raise HandlerLoadError(f"model_warmup: {error}") from None
