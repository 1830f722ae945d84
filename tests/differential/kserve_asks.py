"""Asks a server with the client of KServe's SDK; run in an environment of its own, prints JSON.

Its arguments are the HTTP address and the gRPC address.
"""

import asyncio
import json
import sys
from typing import Any

from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig


def question() -> InferRequest:
    numbers = InferInput("n", [1, 3], "FP32", data=[1.0, 2.0, 3.0])
    return InferRequest(model_name="tensors", infer_inputs=[numbers], request_id="mine")


def shown(answer: Any) -> dict[str, Any]:
    outputs = {each.name: [each.datatype, each.shape, each.data] for each in answer.outputs}
    return {"id": answer.id, "model": answer.model_name, "outputs": outputs}


async def over_http(address: str) -> dict[str, Any]:
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        found = {
            "live": await client.is_server_live(address),
            "ready": await client.is_server_ready(address),
            "model": await client.is_model_ready(address, "tensors"),
            "infer": shown(await client.infer(address, question(), model_name="tensors")),
        }
        try:
            await client.infer(address, question(), model_name="absent")
        except Exception as error:  # whatever the SDK makes of a 404
            found["unknown"] = str(error)
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        asked = {"instances": [{"data": "one"}, {"data": "two"}]}
        found["predict"] = await client.infer(address, asked, model_name="echo")
        found["explain"] = await client.explain(address, "echo", asked)
        found["v1_ready"] = await client.is_model_ready(address, "tensors")
    return found


async def over_grpc(address: str) -> dict[str, Any]:
    async with InferenceGRPCClient(address) as client:
        return {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model": await client.is_model_ready("tensors"),
            "infer": shown(await client.infer(question())),
        }


async def main() -> None:
    http, grpc = sys.argv[1:]
    print(json.dumps({"http": await over_http(http), "grpc": await over_grpc(grpc)}, default=list))


asyncio.run(main())
