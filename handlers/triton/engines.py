"""What runs the file of a Triton model that is a program: arrays by name in, arrays by name out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.program_files import load_pt2, load_torchscript, open_onnx
from marserve.handlers.runners.openvino import import_openvino

Arrays = dict[str, Any]
_NUMBERED = re.compile(r".*__(\d+)")


class Engine(Protocol):
    """Runs a model."""

    def __call__(self, inputs: Arrays) -> Arrays:
        """Returns all outputs of one batch."""
        ...


class OnnxEngine:
    """ONNX Runtime.

    Args:
        path: The file.
        device: Where it computes.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        self._path, self._device = path, device
        self._open()

    def __call__(self, inputs: Arrays) -> Arrays:
        """Runs one batch; its threads are those of PyTorch, of which the worker is told."""
        if self._threads != torch.get_num_threads():
            self._open()
        return dict(zip(self._names, self._session.run(None, inputs), strict=True))

    def _open(self) -> None:
        self._threads = torch.get_num_threads()
        self._session = open_onnx(self._path, self._device, self._threads)
        self._names = [value.name for value in self._session.get_outputs()]


class OpenVinoEngine:
    """OpenVINO, on the CPU.

    Args:
        path: The ``.xml`` file.

    Raises:
        HandlerLoadError: If it is something else, or OpenVINO is not installed.
    """

    def __init__(self, path: Path) -> None:
        try:
            core = import_openvino().Core()
            settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
            self._model = core.compile_model(core.read_model(path), "CPU", settings)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1][:300]
            raise HandlerLoadError(f"{path.name}: is no OpenVINO model: {reason}") from error

    def __call__(self, inputs: Arrays) -> Arrays:
        """Runs one batch."""
        found = self._model(inputs)
        return {output.get_any_name(): found[output] for output in self._model.outputs}


class TorchEngine:
    """A TorchScript model, an exported program or a package of AOTInductor.

    Args:
        path: The file.
        device: Where it computes.
        config: Names inputs and outputs: ``NAME__0`` and so on say their places, else the order.
    """

    def __init__(self, path: Path, device: torch.device, config: Mapping[str, Any]) -> None:
        self._device = device
        if path.suffix == ".pt2":
            model = load_pt2(path, device)
            self._model = (
                model.module() if isinstance(model, torch.export.ExportedProgram) else model
            )
        else:
            self._model = load_torchscript(path, device)
        self._inputs = self._argument_names() or _in_order(config, "input")
        declared = {each["name"] for each in config.get("input", [])}
        if declared and not declared <= set(self._inputs):
            self._inputs = _in_order(config, "input")
        self._outputs = _in_order(config, "output")

    @torch.inference_mode()
    def __call__(self, inputs: Arrays) -> Arrays:
        """Runs one batch."""
        for name, array in inputs.items():
            if array.dtype == object:
                raise RequestError(f"input '{name}': PyTorch has no tensors of BYTES")
        order = self._inputs or list(inputs)
        tensors = [_tensor(inputs[name]).to(self._device) for name in order if name in inputs]
        found = self._model(*tensors)
        if isinstance(found, Mapping):
            return {str(name): _array(value) for name, value in found.items()}
        values = [found] if isinstance(found, torch.Tensor) else list(found)
        names = self._outputs or [f"OUTPUT__{at}" for at in range(len(values))]
        return {name: _array(value) for name, value in zip(names, values, strict=False)}

    def _argument_names(self) -> list[str]:
        """As the model's code has them; none where that is not known."""
        graph: Any = getattr(self._model, "graph", None)
        if not hasattr(graph, "inputs"):
            return []
        return [value.debugName().split(".")[0] for value in list(graph.inputs())[1:]]


def open_engine(
    backend: str, path: Path, device: torch.device, config: Mapping[str, Any]
) -> Engine:
    """Opens a model's file.

    Args:
        backend: ``onnxruntime``, ``pytorch`` or ``openvino``.
        path: The file.
        device: Where it computes, if the engine can.
        config: Of the model.

    Raises:
        HandlerLoadError: If the file is something else, or its engine is not installed.
    """
    if backend == "onnxruntime":
        return OnnxEngine(path, device)
    if backend == "openvino":
        return OpenVinoEngine(path)
    return TorchEngine(path, device, config)


def _in_order(config: Mapping[str, Any], key: str) -> list[str]:
    names: list[str] = [each["name"] for each in config.get(key, [])]
    places = [_NUMBERED.fullmatch(name) for name in names]
    if all(places):
        return sorted(names, key=lambda name: int(name.rpartition("__")[2]))
    return names


def _tensor(array: Any) -> torch.Tensor:
    """Inputs may be read-only views of what was received; models are not to write to them."""
    return torch.from_numpy(array if array.flags.writeable else np.array(array))


def _array(value: torch.Tensor) -> Any:
    value = value.detach().cpu()
    return value if value.dtype == torch.bfloat16 else value.numpy()  # which has no such type
