"""``ts.torch_handler.distributed.base_neuronx_microbatching_handler``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.distributed import BaseNeuronXHandler as BaseNeuronXMicroBatchingHandler

__all__ = ["BaseNeuronXMicroBatchingHandler"]
