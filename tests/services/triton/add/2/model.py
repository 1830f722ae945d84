import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.version = args["model_version"]
        config = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(config, "SUM")
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])
        self.offset = float(config["parameters"]["offset"]["string_value"])
        self.scale = int(self.version)

    def execute(self, requests):
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "B").as_numpy()
            if np.any(a == -1):
                error = pb_utils.TritonError("A may not be -1", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse([], error))
                continue
            if np.any(a == -2):
                raise ValueError("A may not be -2")
            total = ((a + b) * self.scale + self.offset).astype(self.dtype)
            outputs = [
                pb_utils.Tensor("SUM", total),
                pb_utils.Tensor("DIFFERENCE", (a - b).astype(self.dtype)),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
