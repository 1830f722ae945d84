"""The reflection service, from which tools learn the others: versions 1 and 1alpha, the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pool

from marserve.frontend.errors import ServiceUnavailable
from marserve.frontend.grpc import reflection_pb2 as pb
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.calls import Calls
from marserve.frontend.grpc.pool import POOL
from marserve.frontend.grpc.statuses import Status

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

_SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


class ReflectionService:
    """The service, as a list of methods.

    Args:
        calls: Makes the methods.
        files: That hold the services of the address.
        names: Of those services.
        token: The key of the address.
    """

    def __init__(
        self, calls: Calls, files: Iterable[FileDescriptor], names: Iterable[str], token: str
    ) -> None:
        self.token = token
        self.calls = calls
        self._open: set[Call] = set()
        self._files: dict[str, FileDescriptor] = {}
        for file in (*files, pb.DESCRIPTOR):
            self._add(file)
        self._names = sorted({*names, _SERVICES[0]})
        self.methods = {
            path: calls.duplex(path, self._answer, pb.ServerReflectionRequest.FromString)
            for path in (f"/{name}/ServerReflectionInfo" for name in _SERVICES)
        }

    def drain(self) -> None:
        """The server stops: tools ask no more."""
        for call in list(self._open):
            call.lose(ServiceUnavailable("The server is being stopped.", retry_after_s=1))

    def _add(self, file: FileDescriptor) -> None:
        """Takes a file and all that it needs."""
        if file.name not in self._files:
            self._files[file.name] = file
            for each in file.dependencies:
                self._add(each)

    async def _answer(
        self, messages: AsyncIterator[pb.ServerReflectionRequest], call: Call, _id: str
    ) -> None:
        self._open.add(call)
        try:
            async for message in messages:
                response = pb.ServerReflectionResponse(valid_host=message.host)
                response.original_request.CopyFrom(message)
                self._fill(message, response)
                await call.write(response.SerializeToString())
        finally:
            self._open.discard(call)

    def _fill(
        self, message: pb.ServerReflectionRequest, response: pb.ServerReflectionResponse
    ) -> None:
        kind = message.WhichOneof("message_request")
        if kind == "list_services":
            response.list_services_response.service.extend(
                pb.ServiceResponse(name=name) for name in self._names
            )
        elif kind == "file_by_filename":
            self._send(self._files.get(message.file_by_filename), response)
        elif kind == "file_containing_symbol":
            self._send(self._find(message.file_containing_symbol), response)
        elif kind == "all_extension_numbers_of_type" and self._find(
            message.all_extension_numbers_of_type
        ):
            found = response.all_extension_numbers_response  # there are none, and that is said
            found.base_type_name = message.all_extension_numbers_of_type
        else:
            self._send(None, response)

    def _send(self, file: FileDescriptor | None, response: pb.ServerReflectionResponse) -> None:
        """Answers with a file and all that it needs, the needed ones last."""
        if file is None:
            response.error_response.error_code = int(Status.NOT_FOUND)
            response.error_response.error_message = "There is nothing of that name here."
            return
        waiting, sent = [file], set()
        while waiting:
            each = waiting.pop(0)
            if each.name not in sent:
                sent.add(each.name)
                response.file_descriptor_response.file_descriptor_proto.append(each.serialized_pb)
                waiting += each.dependencies

    def _find(self, symbol: str) -> FileDescriptor | None:
        """The file of a message, a service, or, by its service, a method."""
        for name in (symbol, symbol.rpartition(".")[0]):
            for pool in (POOL, descriptor_pool.Default()):
                try:
                    found: Any = pool.FindFileContainingSymbol(name)
                except KeyError:
                    continue
                if found.name in self._files:
                    return self._files[found.name]
        return None
