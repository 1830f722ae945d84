"""compat=strict over gRPC: TorchServe's statuses, where ours differ."""

from __future__ import annotations

import json

import grpc
from tests.e2e.grpc_clients import LIMIT_S, Clients, failure
from tests.e2e.running import Running

from marserve.frontend.grpc import management_pb2 as pb


def test_strict(server: Running) -> None:
    server.properties = "compat=strict\ndefault_workers_per_model=1"
    server.pack("raising", "raising")
    server.start().manage("POST", "/models?url=raising.mar&model_name=idle&initial_workers=0")
    with Clients(server) as ask:
        unknown = failure(lambda: ask.predict("nothing"))
        idle = failure(lambda: ask.predict("idle"))
        failed = failure(lambda: ask.predict("raising", "value"))
        page = ask.management.ListModels(pb.ListModelsRequest(), timeout=LIMIT_S).msg
        described = failure(
            lambda: ask.management.DescribeModel(pb.DescribeModelRequest(model_name="nothing"))
        )

    assert (grpc.StatusCode.INTERNAL, "Model not found: nothing") == unknown
    assert grpc.StatusCode.INTERNAL == idle[0]
    assert grpc.StatusCode.UNAVAILABLE == failed[0]
    assert {"nextPageToken": "0", "models": []} == json.loads(page)
    assert (grpc.StatusCode.NOT_FOUND, "Model not found: nothing") == described
