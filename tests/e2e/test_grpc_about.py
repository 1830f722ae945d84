"""Health and reflection over gRPC, and which key each service needs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from tests.e2e.grpc_clients import LIMIT_S, failure
from tests.e2e.running import Running, running
from tritonclient.utils import InferenceServerException

from marserve.frontend.grpc import health_pb2 as health
from marserve.frontend.grpc import reflection_pb2 as reflection

Code = grpc.StatusCode
UP = health.HealthCheckResponse.SERVING
V2, TORCHSERVE = "inference.GRPCInferenceService", "org.pytorch.serve.grpc.inference"
REFUSED = "Token Authorization failed"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for server in running(tmp_path_factory.mktemp("about"), arguments=("--enable-model-api",)):
        server.properties = "default_workers_per_model=1"
        server.pack("tensors", "tensors")
        yield server.start()


@pytest.fixture(scope="module")
def channels(server: Running) -> Iterator[dict[str, grpc.Channel]]:
    made = {k: grpc.insecure_channel(f"127.0.0.1:{p}") for k, p in server.grpc_ports.items()}
    yield made
    for channel in made.values():
        channel.close()


def keys(server: Running) -> dict[str, list[tuple[str, str]]]:
    file = json.loads((server.root / "key_file.json").read_text())
    return {kind: [("authorization", f"Bearer {file[kind]['key']}")] for kind in file}


def check(channel: grpc.Channel, service: str = "") -> Any:
    method: Any = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        health.HealthCheckRequest.SerializeToString,
        health.HealthCheckResponse.FromString,
    )
    return method(health.HealthCheckRequest(service=service), timeout=LIMIT_S).status


def watch(channel: grpc.Channel, service: str = "") -> Any:
    method: Any = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        health.HealthCheckRequest.SerializeToString,
        health.HealthCheckResponse.FromString,
    )
    return method(health.HealthCheckRequest(service=service), timeout=LIMIT_S)


def test_health_is_told_without_a_key(channels: dict[str, grpc.Channel]) -> None:
    inference = channels["inference"]

    names = ("", V2, "grpc.health.v1.Health")

    assert [UP, UP, UP] == [check(inference, name) for name in names]
    assert UP == check(channels["management"])
    assert Code.NOT_FOUND == failure(lambda: check(inference, "nothing"))[0]
    assert UP == next(watch(inference)).status
    unknown = next(watch(inference, "nothing")).status
    assert health.HealthCheckResponse.SERVICE_UNKNOWN == unknown


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection(server: Running, channels: dict[str, grpc.Channel], version: str) -> None:
    method: Any = channels["inference"].stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection.ServerReflectionRequest.SerializeToString,
        reflection.ServerReflectionResponse.FromString,
    )

    mine = keys(server)["inference"]

    def ask(*questions: Any, key: Any = mine) -> list[Any]:
        return list(method(iter(questions), metadata=key, timeout=LIMIT_S))

    request = reflection.ServerReflectionRequest
    listed, found, by_method, unknown = ask(
        request(list_services=""),
        request(file_containing_symbol=V2),
        request(file_containing_symbol=f"{TORCHSERVE}.InferenceAPIsService.Predictions"),
        request(file_containing_symbol="no.such.Thing"),
    )
    names = {each.name for each in listed.list_services_response.service}
    pool = DescriptorPool()
    files = [
        FileDescriptorProto.FromString(each)
        for each in found.file_descriptor_response.file_descriptor_proto
    ]
    for file in reversed(files):
        pool.Add(file)
    service: Any = pool.FindServiceByName(V2)

    assert {V2, f"{TORCHSERVE}.InferenceAPIsService", "grpc.health.v1.Health"} <= names
    assert "ModelStreamInfer" in service.methods_by_name
    assert by_method.file_descriptor_response.file_descriptor_proto
    assert int(Code.NOT_FOUND.value[0]) == unknown.error_response.error_code
    assert Code.PERMISSION_DENIED == failure(lambda: ask(request(list_services=""), key=None))[0]


def test_the_keys_of_v2(server: Running) -> None:
    key = {kind: dict(pairs) for kind, pairs in keys(server).items()}
    address = f"127.0.0.1:{server.grpc_ports['inference']}"

    def refused(ask: Any) -> bool:
        with pytest.raises(InferenceServerException) as caught:
            ask()
        assert "StatusCode.PERMISSION_DENIED" == caught.value.status()
        assert str(caught.value.message()).startswith(REFUSED)
        return True

    with triton.InferenceServerClient(address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert "marserve" == client.get_server_metadata().name
        assert refused(lambda: client.is_model_ready("tensors"))
        assert client.is_model_ready("tensors", headers=key["inference"])
        assert refused(lambda: client.infer("tensors", []))
        assert refused(lambda: client.load_model("tensors", headers=key["inference"]))
        client.load_model("tensors", headers=key["management"])
        assert refused(client.get_log_settings)
        assert client.get_log_settings(headers=key["inference"]).settings
        change = {"log_verbose_level": 0}
        assert refused(lambda: client.update_log_settings(change, headers=key["inference"]))
        assert client.update_log_settings(change, headers=key["management"]).settings


def test_who_watches_does_not_hold_the_stop_up(server: Running) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_ports['inference']}") as channel:
        watching = watch(channel)
        assert UP == next(watching).status
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert Code.UNAVAILABLE == failure(lambda: list(watching))[0]
        assert 0 == server.stop(0)
