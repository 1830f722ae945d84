"""Eager PyTorch: weights in a transformers model, attention by SDPA, under inference mode."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from marserve.handlers.runners.base import (
    INPUT_NAMES,
    Decoder,
    Inputs,
    Outputs,
    RunnerOptions,
    probe,
)
from marserve.handlers.runners.decoding import CachedDecoder, EncodedDecoder, exercise
from marserve.handlers.runners.quantized import quantize_module
from marserve.handlers.runners.weights import load_module


class EagerRunner:
    """Runs a transformers model as it is.

    Args:
        module: In evaluation mode, on its device.
        output_names: The outputs that the task reads.
        forward: What is called; None for ``module``.
        decodes: Whether text is generated, by ``decoder``.
        known: Names of the inputs that the task has to offer.
    """

    def __init__(
        self,
        module: nn.Module,
        output_names: tuple[str, ...],
        forward: Callable[..., Any] | None = None,
        decodes: bool = False,
        known: tuple[str, ...] = INPUT_NAMES,
    ) -> None:
        self._module = module
        self._forward: Callable[..., Any] = module if forward is None else forward
        self._output_names = output_names
        self._decodes = decodes
        self._input_names = input_names(module, known)
        parameter = next(module.parameters())
        self._device, self._dtype = parameter.device, parameter.dtype

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that the model takes."""
        return self._input_names

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._device

    @property
    def module(self) -> nn.Module:
        """The model."""
        return self._module

    def calling(self, forward: Callable[..., Any]) -> EagerRunner:
        """Returns a runner of the same model that calls something else for it."""
        other = copy.copy(self)
        other._forward = forward
        return other

    @torch.inference_mode()
    def __call__(self, inputs: Inputs) -> Outputs:
        """Runs one padded batch."""
        outputs = self._forward(**{name: self._cast(values) for name, values in inputs.items()})
        return {name: outputs[name] for name in self._output_names}

    def _cast(self, values: Any) -> Any:
        """Sound and images come in float32, whatever the model computes in."""
        is_real = isinstance(values, Tensor) and values.is_floating_point()
        return values.to(self._dtype) if is_real else values

    def decoder(self) -> Decoder:
        """Returns a decoder that keeps keys and values of past tokens."""
        if getattr(getattr(self._module, "config", None), "is_encoder_decoder", False):
            return EncodedDecoder(self._module, self._forward)
        return CachedDecoder(self._module, self._forward)

    def warm_up(self) -> None:
        """Runs once, so that memory is mapped and kernels are chosen."""
        if self._decodes:
            exercise(self.decoder, lambda rows, tokens: probe(rows, tokens, self))
        else:
            self(probe(1, 8, self))


def input_names(module: nn.Module, known: tuple[str, ...] = INPUT_NAMES) -> tuple[str, ...]:
    """Returns which of the inputs that a task has a model takes."""
    parameters = inspect.signature(module.forward).parameters
    names = [name for name in known if name in parameters]
    if getattr(getattr(module, "config", None), "type_vocab_size", 2) < 2:
        names = [name for name in names if name != "token_type_ids"]  # there is no second segment
    return tuple(names)


def load_eager_module(options: RunnerOptions) -> nn.Module:
    """Loads the archive's weights, with numbers of fewer bits if that is asked for.

    Raises:
        HandlerLoadError: If they are absent, damaged, or of another model, or if they cannot be
            quantised here.
    """
    module = load_module(options)
    return quantize_module(module, options.quantization) if options.quantization else module


def load(options: RunnerOptions) -> EagerRunner:
    """Loads the archive's weights.

    Raises:
        HandlerLoadError: If they do not load.
    """
    return EagerRunner(
        load_eager_module(options),
        options.output_names,
        decodes=options.decodes,
        known=options.input_names,
    )
