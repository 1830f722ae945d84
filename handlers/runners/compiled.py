"""Compiled PyTorch: ``torch.compile`` around the eager model, with any batch size and length."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.loading import compile_module
from marserve.handlers.runners.base import INPUT_NAMES, Outputs, RunnerOptions, probe
from marserve.handlers.runners.decoding import exercise
from marserve.handlers.runners.eager import EagerRunner, load_eager_module

_WARM_UP_SHAPES = ((1, 8), (1, 16), (3, 24))  # a batch of one is compiled for itself
_GRAPHS = 32  # generation needs about ten; past the limit PyTorch would run eagerly, with a warning


class CompiledRunner(EagerRunner):
    """Runs the compiled form of a transformers model.

    Args:
        module: The eager model; explanations use it as it is.
        output_names: The outputs that the task reads.
        options: Arguments of ``torch.compile``; ``dynamic`` is true unless they say otherwise.
        decodes: Whether text is generated, by ``decoder``.
        known: Names of the inputs that the task has to offer.
    """

    def __init__(
        self,
        module: nn.Module,
        output_names: tuple[str, ...],
        options: dict[str, Any],
        decodes: bool = False,
        known: tuple[str, ...] = INPUT_NAMES,
    ) -> None:
        compiled = compile_module(module, {"dynamic": True, **options})
        super().__init__(module, output_names, compiled, decodes, known)

    def __call__(self, inputs: dict[str, Any]) -> Outputs:
        """Runs one padded batch."""
        outputs = super().__call__(inputs)
        if self.device.type != "cuda":
            return outputs
        # With CUDA graphs the next run overwrites the outputs of this one.
        return {name: value.clone() for name, value in outputs.items()}

    def warm_up(self) -> None:
        """Compiles before the first request, which would wait for it otherwise.

        Raises:
            HandlerLoadError: If the model cannot be compiled here.
        """
        try:
            if self._decodes:
                exercise(self.decoder, lambda rows, tokens: probe(rows, tokens, self))
            else:
                for rows, tokens in _WARM_UP_SHAPES:
                    self(probe(rows, tokens, self))
        except Exception as error:  # compilers raise what they like
            raise HandlerLoadError(
                f"model-config.yaml: $.pt2.compile: the model cannot be compiled here:"
                f" {type(error).__name__}: {str(error)[:800]}; set pt2.compile.enable: false to run"
                " it eagerly"
            ) from error


def load(options: RunnerOptions) -> CompiledRunner:
    """Loads the archive's weights and compiles their model.

    Raises:
        HandlerLoadError: If they do not load or cannot be compiled.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _GRAPHS)
    return CompiledRunner(
        load_eager_module(options),
        options.output_names,
        options.compile_options,
        options.decodes,
        options.input_names,
    )
