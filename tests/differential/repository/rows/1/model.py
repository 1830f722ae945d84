"""The sum of two inputs; one that holds 13 fails its own request alone."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in "AB")
        if 13 in a:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("thirteen is refused"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", a + b)])
