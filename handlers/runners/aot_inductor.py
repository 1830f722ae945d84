"""AOTInductor: a model that was compiled ahead of time to machine code, in a package (``.pt2``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor
from torch.utils import _pytree as pytree

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.cpu_features import cpu_features
from marserve.handlers.program_files import load_aot_package
from marserve.handlers.runners.base import Inputs, RunnerOptions
from marserve.handlers.runners.program import ProgramRunner, known_names, program_file

FEATURES_KEY = "marserve.cpu_features"
"""Metadata of a package: the instruction sets that its machine code may use."""


class AotInductorProgram:
    """Runs a package.

    Args:
        path: The package.
        options: Knows the device, and the names of the task's inputs.

    Raises:
        HandlerLoadError: If it cannot run on this machine.
    """

    def __init__(self, path: Path, options: RunnerOptions) -> None:
        self._package = load_aot_package(path, options.device)
        _check_features(self._package.get_metadata().get(FEATURES_KEY, ""), path.name)
        # Keyword arguments keep their names in a package, positional ones only their number.
        spec = pytree.treespec_loads(self._package.loader.get_call_spec()[0])
        positional, keywords = spec.children()
        self._named = not positional.num_leaves
        names = (
            list(keywords.context) if self._named else [f"#{at}" for at in range(spec.num_leaves)]
        )
        self.input_names = known_names(names, options, named=self._named)

    def __call__(self, inputs: Inputs) -> Sequence[Tensor]:
        """Runs one padded batch."""
        outputs = self._package(**inputs) if self._named else self._package(*inputs.values())
        return (outputs,) if isinstance(outputs, Tensor) else tuple(pytree.tree_leaves(outputs))


def _check_features(needed: str, file: str) -> None:
    """An instruction that the processor does not have would end the worker without a word."""
    if missing := sorted(set(needed.split()) - set(cpu_features())):
        raise HandlerLoadError(
            f"{file}: was compiled for a processor with {', '.join(missing[:8])}, which this one"
            " does not have; export it on a machine like this one"
        )


def load(options: RunnerOptions) -> ProgramRunner:
    """Loads the archive's package.

    Raises:
        HandlerLoadError: If there is none, it is something else, or made for another machine.
    """
    path = program_file(options, "aot_inductor")
    return ProgramRunner(AotInductorProgram(path, options), options, options.device)
