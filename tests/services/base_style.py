"""A subclass of ts.torch_handler.base_handler.BaseHandler: numbers in, their doubles out.

The body is a JSON list of numbers, or an object with the list under ``instances``. There are no
weights: ``initialize`` makes the model itself. ``describe_handle`` feeds ``?customized=true``.
An explanation of a request is the gradient of its sum: a list of twos.
"""

import torch
from ts.handler_utils.timer import timed
from ts.torch_handler.base_handler import BaseHandler


class DoublingHandler(BaseHandler):
    def initialize(self, context):
        properties = context.system_properties
        self.manifest = context.manifest
        self.device = torch.device("cpu")
        self.model_dir = properties.get("model_dir")
        self.model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.constant_(self.model.weight, 2.0)
        self.model.eval()
        self.initialized = True

    @timed
    def preprocess(self, requests):
        self.lengths = []
        numbers = []
        for row in requests:
            value = row.get("data") or row.get("body")
            if isinstance(value, dict):
                value = value["instances"]
            self.lengths.append(len(value))
            numbers += value
        return torch.tensor(numbers, dtype=torch.float32).unsqueeze(1)

    def postprocess(self, output):
        return [piece.squeeze(1).tolist() for piece in output.split(self.lengths)]

    def get_insights(self, tensor_data, _, target=0):
        return [[2.0] * len(tensor_data)]

    def describe_handle(self):
        return {"multiplies_by": 2, "device": str(self.device)}
