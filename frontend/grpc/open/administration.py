"""All calls of V2 over gRPC but inference: server, models, repository, shared memory, settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from marserve.frontend.api.exchange import checked_name
from marserve.frontend.errors import BadRequest, InternalError, ServeError
from marserve.frontend.grpc import open_inference_pb2 as pb
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.calls import Calls, Method
from marserve.frontend.grpc.open import settings
from marserve.frontend.grpc.pool import POOL
from marserve.frontend.v2 import metadata, repository, statistics

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services

SERVICE = "/inference.GRPCInferenceService/"
Answer = Callable[[Any, Call], Awaitable[Any]]


class Administration:
    """A part of the service: those calls that need the same key.

    Args:
        services: What it works with.
        calls: Makes the methods.
        token: The key.
        names: Of the calls.
    """

    def __init__(
        self, services: Services, calls: Calls, token: str | None, names: tuple[str, ...]
    ) -> None:
        self._services = services
        self._registry = services.registry
        self.token = token
        self.calls = calls
        self.methods = dict(self._method(name) for name in names)

    def drain(self) -> None:
        """Nothing to end: no call waits for more."""

    def _method(self, name: str) -> tuple[str, Method]:
        path = SERVICE + name
        request, response = getattr(pb, name + "Request"), getattr(pb, name + "Response")
        answer: Answer = getattr(self, "_" + name)

        async def work(message: Any, call: Call, _id: str) -> Any:
            found = await answer(message, call)
            return found if isinstance(found, response) else _message(response, found)

        encode = response.SerializeToString
        return path, self.calls.unary(path, work, request.FromString, encode)

    # -- the server ------------------------------------------------------------------------------

    async def _ServerLive(self, _message: Any, _call: Call) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def _ServerReady(self, _message: Any, _call: Call) -> Any:
        return pb.ServerReadyResponse(ready=self._registry.ready())

    async def _ServerMetadata(self, _message: Any, _call: Call) -> Any:
        return metadata.server_metadata(self._services.config)

    # -- models ----------------------------------------------------------------------------------

    async def _ModelReady(self, message: pb.ModelReadyRequest, _call: Call) -> Any:
        try:
            model = self._registry.resolve(_name(message.name), message.version or None)
        except ServeError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=metadata.is_ready(model))

    async def _ModelMetadata(self, message: pb.ModelMetadataRequest, _call: Call) -> Any:
        name, version = _name(message.name), message.version or None
        return metadata.model_metadata(self._registry, name, version)

    async def _ModelConfig(self, message: pb.ModelConfigRequest, _call: Call) -> Any:
        model = self._registry.resolve(_name(message.name), message.version or None)
        return {"config": metadata.model_config(model)}

    async def _ModelStatistics(self, message: pb.ModelStatisticsRequest, _call: Call) -> Any:
        name = _name(message.name) if message.name else None
        return statistics.model_statistics(self._registry, name, message.version or None)

    # -- the repository --------------------------------------------------------------------------

    async def _RepositoryIndex(self, message: pb.RepositoryIndexRequest, _call: Call) -> Any:
        return {"models": await repository.index(self._registry, message.ready)}

    async def _RepositoryModelLoad(
        self, message: pb.RepositoryModelLoadRequest, _call: Call
    ) -> Any:
        given, name = settings.read_choices(message.parameters), _name(message.model_name)
        await repository.load(self._registry, self._services.config, name, given)
        return pb.RepositoryModelLoadResponse()

    async def _RepositoryModelUnload(
        self, message: pb.RepositoryModelUnloadRequest, _call: Call
    ) -> Any:
        given, name = settings.read_choices(message.parameters), _name(message.model_name)
        await repository.unload(self._registry, self._services.config, name, given)
        return pb.RepositoryModelUnloadResponse()

    # -- shared memory ---------------------------------------------------------------------------

    async def _SystemSharedMemoryStatus(
        self, message: pb.SystemSharedMemoryStatusRequest, _call: Call
    ) -> Any:
        found = self._services.v2.regions.status(message.name or None)
        return {"regions": {each["name"]: each for each in found}}

    async def _SystemSharedMemoryRegister(
        self, message: pb.SystemSharedMemoryRegisterRequest, _call: Call
    ) -> Any:
        regions = self._services.v2.regions
        regions.register(message.name, message.key, message.offset, message.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    async def _SystemSharedMemoryUnregister(
        self, message: pb.SystemSharedMemoryUnregisterRequest, _call: Call
    ) -> Any:
        self._services.v2.regions.unregister(message.name or None)
        return pb.SystemSharedMemoryUnregisterResponse()

    async def _no_cuda(self, _message: Any, _call: Call) -> Any:
        raise BadRequest(
            "CUDA shared memory is not offered: the server itself uses no device; use system"
            " shared memory"
        )

    _CudaSharedMemoryStatus = _CudaSharedMemoryRegister = _CudaSharedMemoryUnregister = _no_cuda

    # -- settings --------------------------------------------------------------------------------

    async def _TraceSetting(self, message: pb.TraceSettingRequest, call: Call) -> Any:
        given = settings.read_traces(message)
        self._check_key(bool(given), call)
        traces, name = self._services.v2.traces, None
        if message.model_name:
            name = self._registry.resolve(_name(message.model_name)).name
        return settings.write_traces(traces.change(given, name) if given else traces.values(name))

    async def _LogSettings(self, message: pb.LogSettingsRequest, call: Call) -> Any:
        given = settings.read_choices(message.settings)
        self._check_key(bool(given), call)
        logs = self._services.v2.logs
        return settings.write_logs(logs.change(given) if given else logs.values())

    def _check_key(self, changes: bool, call: Call) -> None:
        """What changes the server needs the key of management."""
        if self._services.auth.enabled:
            kind = "management" if changes else "inference"
            self._services.auth.check(kind, call.head.authorization)


OPEN = ("ServerLive", "ServerReady", "ServerMetadata")
BY_CONTENT = ("TraceSetting", "LogSettings")
INFERENCE = (
    "ModelReady",
    "ModelMetadata",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
)
MANAGEMENT = ("RepositoryModelLoad", "RepositoryModelUnload")


def administration(services: Services, calls: Calls) -> list[Administration]:
    """Returns the parts of the service, one for each key; settings look at what is asked."""
    parts = [(None, OPEN + BY_CONTENT), ("inference", INFERENCE), ("management", MANAGEMENT)]
    return [Administration(services, calls, token, names) for token, names in parts]


def _name(name: str) -> str:
    if not name:
        raise BadRequest("The name of the model is empty.")
    return checked_name(name)


def _message(kind: type[Any], value: Any) -> Any:
    try:
        return json_format.ParseDict(
            value, kind(), ignore_unknown_fields=True, descriptor_pool=POOL
        )
    except json_format.ParseError as error:
        raise InternalError(f"The answer has no form in this protocol: {error}") from None
