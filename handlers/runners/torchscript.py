"""TorchScript: a traced model with its weights in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from marserve.handlers.program_files import load_torchscript
from marserve.handlers.runners.base import Inputs, RunnerOptions
from marserve.handlers.runners.program import ProgramRunner, known_names, program_file


class TorchScriptProgram:
    """Runs a traced model.

    Args:
        model: Returns a mapping or a tuple of tensors.
        options: Knows the names of the task's inputs.
    """

    def __init__(self, model: Any, options: RunnerOptions) -> None:
        self._model = model
        traced = [value.debugName().split(".")[0] for value in list(model.graph.inputs())[1:]]
        self.input_names = known_names(traced, options, named=False)

    def __call__(self, inputs: Inputs) -> Mapping[str, Tensor] | Sequence[Tensor]:
        """Runs one padded batch."""
        outputs = self._model(*inputs.values())
        return (outputs,) if isinstance(outputs, Tensor) else outputs


def load(options: RunnerOptions) -> ProgramRunner:
    """Loads the archive's traced model.

    Raises:
        HandlerLoadError: If there is none, or it is something else.
    """
    path = program_file(options, "torchscript")
    program = TorchScriptProgram(load_torchscript(path, options.device), options)
    return ProgramRunner(program, options, options.device)
