"""Programs of ``torch.export``: the model's operators as a graph, run by PyTorch one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor
from torch.utils import _pytree as pytree

from marserve.handlers.program_files import load_exported
from marserve.handlers.runners.base import Inputs, RunnerOptions
from marserve.handlers.runners.program import ProgramRunner, known_names, program_file


class ExportedProgram:
    """Runs a program.

    Args:
        path: The file.
        options: Knows the device, and the names of the task's inputs.
    """

    def __init__(self, path: Path, options: RunnerOptions) -> None:
        program = load_exported(path, options.device)
        positional, _ = program.call_spec.in_spec.children()
        self._named = not positional.num_leaves
        names = [str(name) for name in program.graph_signature.user_inputs]
        self.input_names = known_names(names, options, named=self._named)
        self._module = program.module()

    def __call__(self, inputs: Inputs) -> Sequence[Tensor]:
        """Runs one padded batch."""
        outputs = self._module(**inputs) if self._named else self._module(*inputs.values())
        return (outputs,) if isinstance(outputs, Tensor) else tuple(pytree.tree_leaves(outputs))


def load(options: RunnerOptions) -> ProgramRunner:
    """Loads the archive's program.

    Raises:
        HandlerLoadError: If there is none, or it is something else.
    """
    path = program_file(options, "exported")
    return ProgramRunner(ExportedProgram(path, options), options, options.device)
