"""TorchServe's inference service: Ping, Predictions, StreamPredictions and StreamPredictions2."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from google.protobuf import empty_pb2

from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.calls import Calls, read
from marserve.frontend.grpc.conversation import Conversation
from marserve.frontend.grpc.inference_pb2 import PredictionsRequest, TorchServeHealthResponse
from marserve.frontend.grpc.messages import encode_prediction, find_model, request_of
from marserve.frontend.grpc.sinks import OneAnswer, Pieces
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services

_SERVICE = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/"
_READ = PredictionsRequest.FromString


class InferenceService:
    """The service, as a list of methods.

    Args:
        services: What it works with.
        calls: Makes the methods.
    """

    token = "inference"  # noqa: S105  (the name of a key, not a key)

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self.calls = calls
        self._open: set[Conversation] = set()
        one, many = _SERVICE + "Predictions", _SERVICE + "StreamPredictions"
        both, ping = _SERVICE + "StreamPredictions2", _SERVICE + "Ping"
        health = TorchServeHealthResponse.SerializeToString
        self.methods = {
            ping: calls.unary(ping, self._ping, empty_pb2.Empty.FromString, health),
            one: calls.quick(one, self._predict),
            many: calls.stream(many, self._stream, _READ),
            both: calls.duplex(both, self._converse, _READ),
        }

    def drain(self) -> None:
        """The server stops: conversations end once what was asked is answered."""
        for conversation in self._open:
            conversation.drain()

    async def _ping(self, _message: object, _call: Call, _id: str) -> TorchServeHealthResponse:
        healthy = self._services.registry.healthy()
        text = json.dumps({"status": "Healthy" if healthy else "Unhealthy"}, indent=2) + "\n"
        return TorchServeHealthResponse(health=text)

    def _predict(self, call: Call, data: Buffer) -> None:
        message: PredictionsRequest = read(_READ, data)
        model = find_model(message, self._services.registry)
        most_bytes = self._services.config.max_response_size
        answer = OneAnswer(call, lambda chunk: encode_prediction(chunk.body, message), most_bytes)
        request = request_of(message, call, call.id, answer, self._services.config)
        call.on_gone = request.cancel
        model.submit(request)

    async def _stream(self, message: PredictionsRequest, call: Call, id: str) -> None:
        model = find_model(message, self._services.registry)
        pieces = Pieces()
        request = request_of(message, call, id, pieces, self._services.config)
        pieces.request = request
        model.submit(request)
        try:
            async for body in pieces:
                await call.write(b"".join(encode_prediction(body, message)))
        finally:
            if not request.answered:
                request.cancel()

    async def _converse(
        self, messages: AsyncIterator[PredictionsRequest], call: Call, id: str
    ) -> None:
        conversation = Conversation(self._services, call)
        self._open.add(conversation)
        try:
            await conversation.run(messages)
        finally:
            self._open.discard(conversation)
