"""TorchScript: a traced model with its weights in one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.loading import load_torchscript
from marserve.handlers.runners.base import (
    INPUT_NAMES,
    Decoder,
    Inputs,
    Outputs,
    RunnerOptions,
    probe,
)
from marserve.handlers.runners.decoding import RecomputingDecoder

_WARM_UP_SHAPES = ((1, 8), (1, 8), (2, 16), (3, 24))  # the executor specialises in its first runs


class TorchScriptRunner:
    """Runs a traced model.

    Args:
        model: Takes ids, mask and perhaps token types; returns a mapping or a tuple of tensors.
        output_names: Names of the outputs, in the model's order.
        device: Where the model is.
    """

    module = None  # a traced model is frozen: nothing in it can be attributed to

    def __init__(self, model: Any, output_names: tuple[str, ...], device: torch.device) -> None:
        self._model = model
        self._output_names = output_names
        self._device = device
        self._input_names = _traced_names(model)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that the model was traced with."""
        return self._input_names

    @property
    def device(self) -> torch.device:
        """Where the inputs must be."""
        return self._device

    @torch.inference_mode()
    def __call__(self, inputs: Inputs) -> Outputs:
        """Runs one padded batch."""
        outputs = self._model(*(inputs[name] for name in self._input_names))
        if isinstance(outputs, Mapping):
            return {name: outputs[name] for name in self._output_names}
        if isinstance(outputs, torch.Tensor):
            outputs = (outputs,)
        return dict(zip(self._output_names, outputs, strict=False))

    def decoder(self) -> Decoder:
        """Returns a decoder that runs the whole text at each step: the trace has no cache."""
        return RecomputingDecoder(self)

    def warm_up(self) -> None:
        """Lets the executor specialise, and finds out whether any length and batch size will do.

        Raises:
            HandlerLoadError: If the model was traced for one shape only.
        """
        for rows, tokens in _WARM_UP_SHAPES:
            try:
                self(probe(rows, tokens, self))
            except (RuntimeError, KeyError) as error:
                reason = str(error).strip().splitlines()[-1:]
                raise HandlerLoadError(
                    f"the TorchScript model does not take {rows} rows of {tokens} tokens"
                    f" ({''.join(reason)[:300]}); trace it anew so that it takes any number, with"
                    " its inputs in the order input_ids, attention_mask, token_type_ids"
                ) from error


def _traced_names(model: Any) -> tuple[str, ...]:
    """The trace keeps the names of its inputs; where they are others, their order counts."""
    traced = [value.debugName().split(".")[0] for value in list(model.graph.inputs())[1:]]
    if traced and all(name in INPUT_NAMES for name in traced):
        return tuple(traced)
    if 1 <= len(traced) <= len(INPUT_NAMES):
        return INPUT_NAMES[: len(traced)]
    raise HandlerLoadError(
        f"the TorchScript model takes {len(traced)} inputs ({', '.join(traced[:6])}); expected"
        f" some of {', '.join(INPUT_NAMES)}"
    )


def load(options: RunnerOptions) -> TorchScriptRunner:
    """Loads the archive's traced model.

    Raises:
        HandlerLoadError: If there is none, or it is something else.
    """
    name = options.weights_file
    if name is None or not (options.directory / name).is_file():
        raise HandlerLoadError(
            "save_mode: torchscript needs a traced model; pack it with --serialized-file"
        )
    model = load_torchscript(options.directory / name, options.device)
    return TorchScriptRunner(model, options.output_names, options.device)
