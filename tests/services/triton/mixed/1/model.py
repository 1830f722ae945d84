import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.logger = pb_utils.Logger
        self.logger.log_info(f"{args['model_name']} begins")
        self.family = pb_utils.MetricFamily(
            name="texts_seen", description="Texts", kind=pb_utils.MetricFamily.COUNTER
        )
        self.counter = self.family.Metric(labels={"model": args["model_name"]})

    async def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            times = pb_utils.get_input_tensor_by_name(request, "TIMES")
            count = 1 if times is None else int(times.as_numpy().ravel()[0])
            self.counter.increment(texts.size)
            upper = np.array([text.decode().upper() * count for text in texts], dtype=np.object_)
            seen = {
                "id": request.request_id(),
                "outputs": sorted(request.requested_output_names()),
                "parameters": json.loads(request.parameters()),
                "correlation": request.correlation_id(),
                "shape": [] if times is None else list(times.as_numpy().shape),
                "cancelled": request.is_cancelled(),
            }
            responses.append(
                pb_utils.InferenceResponse(
                    [
                        pb_utils.Tensor("UPPER", upper),
                        pb_utils.Tensor("SEEN", np.array([json.dumps(seen)], dtype=np.object_)),
                        pb_utils.Tensor("CLASSES", np.array([0.1, 0.7, 0.2], np.float32)),
                    ]
                )
            )
        return responses

    def finalize(self):
        print("mixed ends", flush=True)
