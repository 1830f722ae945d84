"""MicroBatching set up in the constructor and configured by model-config.yaml, as the docs show it.

Rows hold a number under ``data`` or ``body``; the answer is its square and the part of the batch it
was in: ``{"square": 9.0, "part": 0}``. An explanation is ``{"because": [[3.0]]}``.
"""

import torch
from ts.handler_utils.micro_batching import MicroBatching
from ts.torch_handler.base_handler import BaseHandler


class SquareHandler(BaseHandler):
    def __init__(self):
        super().__init__()
        self.handle = MicroBatching(self)

    def initialize(self, ctx):
        config = ctx.model_yaml_config.get("micro_batching", {})
        parallelism = config.get("parallelism", None)
        if parallelism:
            self.handle.parallelism = parallelism
        self.handle.micro_batch_size = config.get("micro_batch_size", 1)
        self.initialized = True

    def preprocess(self, data):
        return torch.tensor([[float(row.get("data") or row.get("body"))] for row in data])

    def inference(self, data):
        return data**2

    def postprocess(self, data):
        part = self.handle.get_micro_batch_idx()
        return [{"square": value, "part": part} for value in data.squeeze(1).tolist()]

    def get_insights(self, tensor_data, _, target=0):
        return [{"because": tensor_data.tolist()}]
