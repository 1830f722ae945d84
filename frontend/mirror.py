"""Mirrored traffic: a copy of every request for another version, whose answers go nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marserve.frontend.errors import ServeError
from marserve.frontend.instruments import Value
from marserve.frontend.types import Chunk, InferenceRequest

if TYPE_CHECKING:
    from marserve.frontend.model import Model


class Mirror:
    """Sends copies to one version, the shadow; whatever becomes of them, no caller notices.

    Args:
        shadow: The version that gets the copies.
        requests: Counts them.
        failures: Counts those that failed or were refused.
    """

    def __init__(self, shadow: Model, requests: Value, failures: Value) -> None:
        self.shadow = shadow
        self._requests = requests
        self._failures = failures
        self.sent = self.failed = 0

    def onto(self, shadow: Model) -> Mirror:
        """Returns one that sends to another model and goes on counting."""
        other = Mirror(shadow, self._requests, self._failures)
        other.sent, other.failed = self.sent, self.failed
        return other

    def copy(self, request: InferenceRequest) -> None:
        """Sends a copy of a request that has just been accepted; the bodies are shared."""
        twin = InferenceRequest(
            f"{request.id}-shadow",
            request.command,
            request.headers,
            request.parts,
            request.bodies,
            self,
            request.timeout_s,
            pinned=True,
            rows=request.rows,
            priority=request.priority,
        )
        self.sent += 1
        self._requests.add(1.0)
        try:
            self.shadow.submit(twin)
        except ServeError:
            self._fail()

    def send(self, chunk: Chunk) -> None:
        """Takes an answer of the shadow, and counts it if it is a failure."""
        if chunk.failure is not None:
            self._fail()

    def _fail(self) -> None:
        self.failed += 1
        self._failures.add(1.0)
