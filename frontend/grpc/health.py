"""The health service, which load balancers and probes ask: SERVING or not, now or as it changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from marserve.frontend.errors import ServeError, ServiceUnavailable
from marserve.frontend.grpc import health_pb2 as pb
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.calls import Calls

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services

SERVICE = "grpc.health.v1.Health"
_LOOK_S = 0.5  # how late a change may be told


class UnknownService(ServeError):
    """There is no service of that name here."""

    status = 404
    type = "ResourceNotFoundException"


class HealthService:
    """The service, as a list of methods.

    Args:
        services: What it works with.
        calls: Makes the methods.
        names: Of the services of the address, which are as healthy as the server.
    """

    token = None

    def __init__(self, services: Services, calls: Calls, names: frozenset[str]) -> None:
        self._registry = services.registry
        self._names = names | {""}
        self._open: set[Call] = set()
        self.calls = calls
        check, watch, listed = (f"/{SERVICE}/{each}" for each in ("Check", "Watch", "List"))
        read, write = pb.HealthCheckRequest.FromString, pb.HealthCheckResponse.SerializeToString
        list_read, list_write = pb.HealthListRequest, pb.HealthListResponse
        self.methods = {
            check: calls.unary(check, self._check, read, write),
            watch: calls.stream(watch, self._watch, read),
            listed: calls.unary(
                listed, self._list, list_read.FromString, list_write.SerializeToString
            ),
        }

    def drain(self) -> None:
        """The server stops: who watches is told so."""
        for call in list(self._open):
            call.lose(ServiceUnavailable("The server is being stopped.", retry_after_s=1))

    async def _check(self, message: pb.HealthCheckRequest, _call: Call, _id: str) -> Any:
        status = self._status(message.service)
        if status is None:
            raise UnknownService(f"There is no service {message.service:.200} here.")
        return pb.HealthCheckResponse(status=status)

    async def _watch(self, message: pb.HealthCheckRequest, call: Call, _id: str) -> None:
        told = None
        self._open.add(call)
        try:
            while True:
                status = self._status(message.service)
                if status is None:
                    status = pb.HealthCheckResponse.SERVICE_UNKNOWN
                if status != told:
                    told = status
                    await call.write(pb.HealthCheckResponse(status=status).SerializeToString())
                await asyncio.sleep(_LOOK_S)
        finally:
            self._open.discard(call)

    async def _list(self, _message: Any, _call: Call, _id: str) -> Any:
        statuses = {name: pb.HealthCheckResponse(status=self._status(name)) for name in self._names}
        return pb.HealthListResponse(statuses=statuses)

    def _status(self, service: str) -> Any:
        """SERVING or NOT_SERVING; None for a service that there is not."""
        if service not in self._names:
            return None
        kind = pb.HealthCheckResponse
        return kind.SERVING if self._registry.ready() else kind.NOT_SERVING
