import os

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from transformers import ViTImageProcessor, ViTModel


class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.join(args["model_repository"], args["model_version"], "weights")
        self.feature_extractor = ViTImageProcessor.from_pretrained(folder)
        self.model = ViTModel.from_pretrained(folder).eval()

    def execute(self, requests):
        responses = []
        for request in requests:
            images = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
            channels_first = [np.transpose(image, (2, 0, 1)) for image in images]
            inputs = self.feature_extractor(images=channels_first, return_tensors="pt")
            with torch.no_grad():
                outputs = self.model(**inputs)
            hidden = pb_utils.Tensor("last_hidden_state", outputs.last_hidden_state.numpy())
            responses.append(pb_utils.InferenceResponse(output_tensors=[hidden]))
        return responses
