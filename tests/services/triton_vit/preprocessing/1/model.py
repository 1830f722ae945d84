import os

import numpy as np
import triton_python_backend_utils as pb_utils
from transformers import ViTImageProcessor


class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.join(args["model_repository"], args["model_version"], "weights")
        self.feature_extractor = ViTImageProcessor.from_pretrained(folder)

    def execute(self, requests):
        responses = []
        for request in requests:
            images = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
            channels_first = [np.transpose(image, (2, 0, 1)) for image in images]
            pixels = self.feature_extractor(images=channels_first, return_tensors="np")
            tensor = pb_utils.Tensor("pixel_values", np.asarray(pixels["pixel_values"], np.float32))
            responses.append(pb_utils.InferenceResponse(output_tensors=[tensor]))
        return responses
