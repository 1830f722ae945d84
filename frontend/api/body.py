"""The body of a request while it arrives: received straight to where it will stay."""

from __future__ import annotations

from marserve.worker.wire import Buffer

_FIRST_BYTES = 1 << 20
_ZEROS = bytes(_FIRST_BYTES)


class ArrivingBody:
    """Takes memory as it fills, at most twice what has come and a mebibyte.

    So a client that announces much and sends little costs little.

    Args:
        size: Of the whole body, bytes.
        first: What came with the head.
    """

    __slots__ = ("_data", "_size", "received")

    def __init__(self, size: int, first: Buffer) -> None:
        self.received = len(first)
        self._size = size
        self._data = bytearray(min(size, max(_FIRST_BYTES, 2 * self.received)))
        self._data[: self.received] = first

    def room(self) -> memoryview:
        """Returns where the next bytes go, none beyond the body; not to be kept.

        Raises:
            BufferError: If the last one is still in use.
        """
        if self.received == len(self._data):
            wanted = min(self._size, 2 * self.received)
            while (missing := wanted - len(self._data)) > 0:
                self._data += _ZEROS if missing >= _FIRST_BYTES else bytes(missing)
        return memoryview(self._data)[self.received :]

    def take(self, count: int) -> bytearray | None:
        """Notes that ``count`` bytes were written there; returns the body if it is complete."""
        self.received += count
        return self._data if self.received == self._size else None
