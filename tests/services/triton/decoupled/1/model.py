import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            threading.Thread(target=self.answer, args=(request, sender)).start()

    def answer(self, request, sender):
        count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
        fail_at = pb_utils.get_input_tensor_by_name(request, "FAIL_AT")
        fail_at = -1 if fail_at is None else int(fail_at.as_numpy()[0])
        for number in range(count):
            if number == fail_at:
                sender.send(
                    pb_utils.InferenceResponse(error=pb_utils.TritonError("as asked")),
                    flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
                )
                return
            tensor = pb_utils.Tensor("NUMBER", np.array([number], np.int32))
            sender.send(pb_utils.InferenceResponse([tensor]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
