"""ONNX Runtime: a graph of operators with its weights, run by an engine of its own."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from marserve.handlers.program_files import open_onnx
from marserve.handlers.runners.base import Inputs, RunnerOptions
from marserve.handlers.runners.program import ProgramRunner, known_names, open_program

QUANTIZATION_KEY = "marserve.quantization"
"""Metadata of the file: what its weights were brought to, a value of ``handler.quantization``."""

_NARROW = "tensor(int32)"


class OnnxProgram:
    """Runs an ONNX file.

    The engine's threads are those of PyTorch: the worker is told how many it may have, and follows
    by opening the file anew.

    Args:
        path: The file.
        options: Where it computes; its inputs and outputs are on the CPU.
    """

    def __init__(self, path: Path, options: RunnerOptions) -> None:
        self._path = path
        self._device = options.device
        self._open()
        inputs = self._session.get_inputs()
        self.input_names = known_names([value.name for value in inputs], options)
        self._narrow = {value.name for value in inputs if value.type == _NARROW}
        self._output_names = [value.name for value in self._session.get_outputs()]

    @property
    def quantization(self) -> str | None:
        """What the file says of its numbers; None if it says nothing."""
        metadata = self._session.get_modelmeta().custom_metadata_map
        found: str | None = metadata.get(QUANTIZATION_KEY)
        return found

    def __call__(self, inputs: Inputs) -> dict[str, Tensor]:
        """Runs one padded batch."""
        if self._threads != torch.get_num_threads():
            self._open()
        feed = {
            name: (tensor.int() if name in self._narrow else tensor).contiguous().numpy()
            for name, tensor in inputs.items()
        }
        arrays = self._session.run(None, feed)
        return {n: torch.from_numpy(a) for n, a in zip(self._output_names, arrays, strict=True)}

    def _open(self) -> None:
        self._threads = torch.get_num_threads()
        self._session = open_onnx(self._path, self._device, self._threads)


def load(options: RunnerOptions) -> ProgramRunner:
    """Opens the archive's ONNX file.

    Raises:
        HandlerLoadError: If there is none, it is something else, or it has not the numbers that
            ``handler.quantization`` asks for.
    """
    return open_program("onnx", OnnxProgram, options)
