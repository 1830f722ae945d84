"""Every input comes back as the output of its datatype; some texts ask for errors."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        outputs = []
        for tensor in request.inputs():
            array = tensor.as_numpy()
            if array.dtype == object and b"raise" in array:
                raise ValueError("the model was asked to raise")
            if array.dtype == object and b"refuse" in array:
                error = pb_utils.TritonError("the text is refused", pb_utils.TritonError.NOT_FOUND)
                return pb_utils.InferenceResponse(error=error)
            name = tensor.name().replace("IN_", "OUT_")
            outputs.append(pb_utils.Tensor(name, array))
        return pb_utils.InferenceResponse(outputs)
