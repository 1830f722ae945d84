"""Clients of the gRPC services, as generated from their proto files."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest
from tests.e2e.running import Running

from marserve.frontend.grpc import inference_pb2_grpc, management_pb2_grpc
from marserve.frontend.grpc.inference_pb2 import PredictionResponse, PredictionsRequest

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
LIMIT_S = 60


def question(model: str, body: bytes | str = b"", **more: Any) -> PredictionsRequest:
    """A question whose input is called ``data``, as TorchServe's own client has it."""
    data = body.encode() if isinstance(body, str) else body
    return PredictionsRequest(model_name=model, input={"data": data}, **more)


class Clients:
    """Stubs for both services of a server.

    Args:
        server: Started.
        tls: The certificate that is trusted; None for no TLS.
    """

    def __init__(self, server: Running, tls: bytes | None = None) -> None:
        self.server = server
        self._tls = tls
        self.channels = {kind: self._channel(port) for kind, port in server.grpc_ports.items()}
        stubs: Any = inference_pb2_grpc, management_pb2_grpc  # generated without types
        self.inference = stubs[0].InferenceAPIsServiceStub(self.channels["inference"])
        self.management = stubs[1].ManagementAPIsServiceStub(self.channels["management"])

    def _channel(self, port: int) -> grpc.Channel:
        if self._tls is None:
            return grpc.insecure_channel(f"127.0.0.1:{port}", UNLIMITED)
        trust = grpc.ssl_channel_credentials(self._tls)
        return grpc.secure_channel(f"localhost:{port}", trust, UNLIMITED)

    def predict(self, model: str, body: bytes | str = b"", **more: Any) -> bytes:
        """The answer to one question."""
        timeout_s = more.pop("timeout", LIMIT_S)
        metadata = more.pop("metadata", None)
        asked = question(model, body, **more)
        answer = self.inference.Predictions(asked, timeout=timeout_s, metadata=metadata)
        return bytes(answer.prediction)

    def stream(self, model: str, body: bytes | str = b"", **more: Any) -> list[bytes]:
        """The pieces of an answer."""
        asked = question(model, body, **more)
        return [a.prediction for a in self.inference.StreamPredictions(asked, timeout=LIMIT_S)]

    def converse(self, *questions: PredictionsRequest) -> list[PredictionResponse]:
        """The answers to questions on one stream."""
        return list(self.inference.StreamPredictions2(iter(questions), timeout=LIMIT_S))

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self.channels.values():
            channel.close()


def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    """Code and details of the error that a call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def untyped(channel: grpc.Channel, path: str) -> Any:
    """A method that takes and gives bytes."""
    return channel.unary_unary(path)


class Held:
    """Questions for one stream that are sent when the test says so."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._waiting: list[PredictionsRequest | None] = []

    def send(self, *questions: PredictionsRequest | None) -> None:
        """Sends questions; None ends the stream."""
        with self._ready:
            self._waiting += questions
            self._ready.notify()

    def __iter__(self) -> Held:
        return self

    def __next__(self) -> PredictionsRequest:
        with self._ready:
            self._ready.wait_for(lambda: self._waiting)
            asked = self._waiting.pop(0)
        if asked is None:
            raise StopIteration
        return asked
