"""Which methods an address has, and who may call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import grpc

from marserve.frontend.errors import InvalidKey
from marserve.frontend.grpc.calls import Calls, Method

if TYPE_CHECKING:
    from marserve.frontend.auth import TokenAuth


class Servicer(Protocol):
    """A service; every address has a list of them.

    Args:
        token: The key that its methods need, ``inference`` or ``management``; None for none.
        methods: By full name, such as ``/package.Service/Method``; made by ``Calls``.
    """

    @property
    def token(self) -> str | None:
        """The kind of key."""
        ...

    @property
    def methods(self) -> Mapping[str, Method]:
        """The methods."""
        ...

    def drain(self) -> None:
        """The server stops: streams that wait for more questions end."""


class Directory(grpc.GenericRpcHandler):
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
        self._methods = {
            name: (method, servicer.token)
            for servicer in servicers
            for name, method in servicer.methods.items()
        }
        self._unknown: tuple[Method | None, str | None] = (None, kind)
        self._auth = auth
        self._calls = calls

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Method | None:
        """Called by grpc for every call; None if there is no such method."""
        name = handler_call_details.method
        method, token = self._methods.get(name, self._unknown)
        if token is not None and self._auth.enabled:
            try:
                self._auth.check(token, _authorization(handler_call_details.invocation_metadata))
            except InvalidKey as error:
                return self._calls.refusal(name, error)
        return method


def _authorization(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    for name, value in metadata:
        if name == "authorization" and isinstance(value, str):
            return value
    return None
