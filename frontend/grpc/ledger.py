"""How many bytes of messages the server holds that no method has taken yet, of all connections."""

from __future__ import annotations

from marserve.frontend.errors import ServiceUnavailable

_LEAST_BYTES = 1 << 30
_MESSAGES = 4  # of the largest size there must be room for, at least


class Ledger:
    """An account of bytes: of messages that are arriving, and of those that wait.

    One message has a limit, and so has the number of calls; their product would be too much.

    Args:
        largest: Bytes that one message may have.
    """

    __slots__ = ("held", "most")

    def __init__(self, largest: int) -> None:
        self.most = max(_LEAST_BYTES, _MESSAGES * largest)
        self.held = 0

    def change(self, by: int) -> None:
        """Notes that so many bytes more are held, or fewer.

        Raises:
            ServiceUnavailable: If they are too many now; they are noted all the same.
        """
        self.held += by
        if by > 0 and self.held > self.most:
            raise ServiceUnavailable(
                f"The server holds {self.held} bytes of messages that are still arriving, more"
                f" than it may ({self.most}). Try again later.",
                retry_after_s=1,
            )
