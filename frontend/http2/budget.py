"""How much a client may ask for without taking anything: what floods of frames are measured by."""

from __future__ import annotations

from marserve.frontend.http2.errors import Code, ConnectionFault

_MOST = 4000.0
_PER_SECOND = 100.0
_PER_FRAME_SENT = 4.0

FRAME, RESET, SETTINGS = 1.0, 4.0, 20.0
"""What a frame without content, a stream that is cut, and a change of settings cost."""


class Budget:
    """The account of one connection. It grows with time, and with what its streams are sent.

    Streams that are opened only to be cut, pings, settings, empty frames: each is legal, and a
    connection that does little else costs more than it is worth.
    """

    __slots__ = ("_at", "_left")

    def __init__(self, now: float) -> None:
        self._at = now
        self._left = _MOST

    def earn(self) -> None:
        """A stream was sent something."""
        self._left += _PER_FRAME_SENT

    def spend(self, cost: float, now: float) -> None:
        """Takes a cost off.

        Raises:
            ConnectionFault: If nothing is left.
        """
        left = min(self._left + (now - self._at) * _PER_SECOND, _MOST) - cost
        self._left, self._at = left, now
        if left < 0:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")
