"""Who answers a stream of messages without a task, called from the event loop."""

from __future__ import annotations

from typing import Protocol

from marserve.worker.wire import Buffer


class Talk(Protocol):
    """Takes the messages of a call, and answers them when it can."""

    @property
    def ready(self) -> bool:
        """Whether another message can be taken."""
        ...

    def take(self, data: Buffer) -> None:
        """Takes a message."""

    def ended(self) -> None:
        """The client sends no more."""

    def gone(self) -> None:
        """The client is gone."""
