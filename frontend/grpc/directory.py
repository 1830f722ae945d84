"""Which methods an address has, and who may call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from marserve.frontend.errors import InvalidKey, ServeError
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.calls import Calls, Method
from marserve.frontend.grpc.heads import Head, Malformed
from marserve.frontend.grpc.statuses import NoSuchMethod
from marserve.frontend.http2.errors import Code, StreamFault
from marserve.frontend.http2.hpack import Field
from marserve.frontend.http2.stream import Stream
from marserve.worker.wire import Buffer

if TYPE_CHECKING:
    from marserve.frontend.auth import TokenAuth


class Servicer(Protocol):
    """A service; every address has a list of them.

    Args:
        token: The key that its methods need, ``inference`` or ``management``; None for none.
        calls: Made the methods.
        methods: By full name, such as ``/package.Service/Method``.
    """

    @property
    def token(self) -> str | None:
        """The kind of key."""
        ...

    @property
    def calls(self) -> Calls:
        """What turns errors into statuses."""
        ...

    @property
    def methods(self) -> Mapping[str, Method]:
        """The methods."""
        ...

    def drain(self) -> None:
        """The server stops: streams that wait for more questions end."""


_Entry = tuple[Method, str | None, Calls]


class Directory:
    """Finds the method of a call, or refuses the call before its message is read.

    Args:
        servicers: Of one address.
        kind: The key without which a caller is not told which methods there are.
        auth: Knows the keys.
        calls: Makes refusals.
    """

    def __init__(
        self, servicers: Iterable[Servicer], kind: str, auth: TokenAuth, calls: Calls
    ) -> None:
        self._methods: dict[str, _Entry] = {
            name: (method, servicer.token, servicer.calls)
            for servicer in servicers
            for name, method in servicer.methods.items()
        }
        self._kind = kind
        self._auth = auth
        self._calls = calls

    def read(self, fields: list[Field] | None) -> Head | None:
        """Returns what a call's fields mean; None if they are no request."""
        try:
            head = Head(fields)
        except Malformed:
            return None
        head.resolved = self._methods.get(head.path)
        if head.authorization is not None and not self._auth.enabled:
            head.headers["authorization"] = head.authorization  # for the handler then
        return head

    def begin(self, stream: Stream, head: Head | None) -> Call:
        """Begins a call.

        Raises:
            StreamFault: If it is no request of HTTP/2.
        """
        if head is None:
            raise StreamFault(stream.number, Code.PROTOCOL_ERROR)
        method, token, calls = head.resolved or self._unknown(head.path)
        call = Call(stream, head, method, calls)
        if head.http_status is not None:
            call.refuse(head.http_status)
        elif (error := self._refusal(head, token)) is not None:
            call.fail(error)
        elif not method.one:
            method.start(call, b"")
        return call

    def _refusal(self, head: Head, token: str | None) -> ServeError | None:
        if token is not None and self._auth.enabled:
            try:
                self._auth.check(token, head.authorization)
            except InvalidKey as error:
                return error
        return head.error

    def _unknown(self, path: str) -> _Entry:
        def start(call: Call, _message: Buffer) -> None:
            call.fail(NoSuchMethod(f"There is no method {path[:200]} at this address."))

        return Method(path, False, start), self._kind, self._calls
