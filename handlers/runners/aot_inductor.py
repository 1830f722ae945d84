"""AOTInductor: a model that was compiled ahead of time to machine code, in a package (``.pt2``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from marserve.handlers.program_files import load_aot_package
from marserve.handlers.runners.base import Inputs, RunnerOptions
from marserve.handlers.runners.program import ProgramRunner, known_names, program_file


class AotInductorProgram:
    """Runs a package.

    Args:
        path: The package.
        device: What it was compiled for.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        self._package = load_aot_package(path, device)
        # Keyword arguments keep their names in a package, positional ones only their number.
        spec = pytree.treespec_loads(self._package.loader.get_call_spec()[0])
        positional, keywords = spec.children()
        self._named = not positional.num_leaves
        names = (
            list(keywords.context) if self._named else [f"#{at}" for at in range(spec.num_leaves)]
        )
        self.input_names = known_names(names, path.name, named=self._named)

    def __call__(self, inputs: Inputs) -> Sequence[Tensor]:
        """Runs one padded batch."""
        outputs = self._package(**inputs) if self._named else self._package(*inputs.values())
        return (outputs,) if isinstance(outputs, Tensor) else tuple(pytree.tree_leaves(outputs))


def load(options: RunnerOptions) -> ProgramRunner:
    """Loads the archive's package.

    Raises:
        HandlerLoadError: If there is none, it is something else, or made for another machine.
    """
    path = program_file(options, "aot_inductor")
    return ProgramRunner(AotInductorProgram(path, options.device), options, options.device)
