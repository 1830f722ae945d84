"""TorchServe's management service: register, unregister, scale, describe, list, set default."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from marserve.frontend.api import http, management_calls
from marserve.frontend.api.exchange import checked_name
from marserve.frontend.api.management_calls import Done
from marserve.frontend.api.management_requests import parse_page, parse_register, parse_scale
from marserve.frontend.errors import BadRequest
from marserve.frontend.grpc import management_pb2 as pb
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.calls import Calls

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services

_SERVICE = "/org.pytorch.serve.grpc.management.ManagementAPIsService/"
_REGISTER = ("batch_size", "initial_workers", "max_batch_delay", "response_timeout")
_ZEROS = frozenset({"initial_workers", "max_batch_delay", "min_worker", "max_worker"})


class ManagementService:
    """The service, as a list of methods.

    Args:
        services: What it works with.
        calls: Makes the methods.
    """

    token = "management"  # noqa: S105  (the name of a key, not a key)

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._registry = services.registry
        self.calls = calls
        self._strict = services.config.compat == "strict"
        table: dict[str, tuple[Callable[[Any, str], Awaitable[str]], type[Message]]] = {
            "DescribeModel": (self._describe, pb.DescribeModelRequest),
            "ListModels": (self._list, pb.ListModelsRequest),
            "RegisterModel": (self._register, pb.RegisterModelRequest),
            "ScaleWorker": (self._scale, pb.ScaleWorkerRequest),
            "SetDefault": (self._set_default, pb.SetDefaultRequest),
            "UnregisterModel": (self._unregister, pb.UnregisterModelRequest),
        }
        encode = pb.ManagementResponse.SerializeToString
        self.methods = {
            _SERVICE + name: calls.unary(_SERVICE + name, _said(work), kind.FromString, encode)
            for name, (work, kind) in table.items()
        }

    def drain(self) -> None:
        """Nothing to end: no call waits for more."""

    async def _describe(self, message: pb.DescribeModelRequest, id: str) -> str:
        name, version = _name(message.model_name), message.model_version or None
        customized = message.customized
        return _json(await management_calls.describe(self._registry, name, version, customized, id))

    async def _list(self, message: pb.ListModelsRequest, _id: str) -> str:
        asked = {"limit": str(message.limit), "next_page_token": str(message.next_page_token)}
        limit, begin = parse_page(asked)
        if self._strict and message.limit <= 0:
            limit = 0  # an empty page, and the token of the first one
        return _json(management_calls.page(self._registry, begin, limit))

    async def _register(self, message: pb.RegisterModelRequest, _id: str) -> str:
        self._check_allowed()
        pairs = _numbers(message, *_REGISTER, "startup_timeout")
        for name in ("url", "model_name", "handler", "runtime"):
            if text := getattr(message, name):
                pairs.append((name, text))
        pairs.append(("synchronous", str(message.synchronous)))
        wanted, unknown = parse_register(pairs, None, b"")
        return (await management_calls.register(self._registry, wanted, unknown)).text

    async def _scale(self, message: pb.ScaleWorkerRequest, _id: str) -> str:
        pairs = _numbers(message, "min_worker", "max_worker")
        pairs.append(("synchronous", str(message.synchronous)))
        wanted, unknown = parse_scale(pairs)
        name, version = _name(message.model_name), message.model_version or None
        done = await management_calls.scale(self._registry, name, version, wanted, unknown)
        return done.text

    async def _set_default(self, message: pb.SetDefaultRequest, _id: str) -> str:
        name = _name(message.model_name)
        if not message.model_version:
            raise BadRequest("Parameter model_version is required.")
        done = await management_calls.set_default(self._registry, name, message.model_version)
        return done.text

    async def _unregister(self, message: pb.UnregisterModelRequest, _id: str) -> str:
        self._check_allowed()
        name, version = _name(message.model_name), message.model_version or None
        done: Done = await management_calls.unregister(self._registry, name, version)
        return done.text

    def _check_allowed(self) -> None:
        if not self._services.config.enable_model_api:
            raise management_calls.switched_off()


def _said(
    work: Callable[[Any, str], Awaitable[str]],
) -> Callable[[Any, Call, str], Awaitable[pb.ManagementResponse]]:
    async def answer(message: Any, _call: Call, id: str) -> pb.ManagementResponse:
        return pb.ManagementResponse(msg=await work(message, id))

    return answer


def _numbers(message: Message, *names: str) -> list[tuple[str, str]]:
    """The numbers that say something: those above zero, and a zero that was sent on purpose."""
    found = []
    for name in names:
        value: int = getattr(message, name)
        if value > 0 or (value == 0 and name in _ZEROS and message.HasField(name)):
            found.append((name, str(value)))
    return found


def _name(name: str) -> str:
    if not name:
        raise BadRequest("Parameter model_name is required.")
    return checked_name(name)


def _json(value: object) -> str:
    return http.json_body(value).decode().rstrip("\n")
