import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        name = pb_utils.get_input_tensor_by_name(request, "MODEL").as_numpy()[0].decode()
        if name == "unload and load":
            pb_utils.unload_model("completing")
            if pb_utils.is_model_ready("completing"):
                raise pb_utils.TritonModelException("completing is still there")
            await asyncio.to_thread(pb_utils.load_model, model_name="completing")
            if not pb_utils.is_model_ready(model_name="completing", model_version="1"):
                raise pb_utils.TritonModelException("completing is not there again")
            name = "add"
        if name == "ready?":
            known = pb_utils.is_model_ready("add"), pb_utils.is_model_ready("nobody")
            if known != (True, False):
                raise pb_utils.TritonModelException(f"wrong: {known}")
            name = "add"
        inputs = [pb_utils.get_input_tensor_by_name(request, each) for each in ("A", "B")]
        asked = pb_utils.InferenceRequest(
            model_name=name, requested_output_names=["SUM"], inputs=inputs, request_id="of bls"
        )
        first = asked.exec()
        if first.has_error():
            return pb_utils.InferenceResponse([], first.error())
        more = await asyncio.gather(*(asked.async_exec() for _ in range(3)))
        total = sum(pb_utils.get_output_tensor_by_name(r, "SUM").as_numpy() for r in [first, *more])
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", total)])
