"""The module of this name in ``ts.torch_handler.distributed``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.distributed import BaseNeuronXHandler as BaseNeuronXContinuousBatchingHandler

__all__ = ["BaseNeuronXContinuousBatchingHandler"]
