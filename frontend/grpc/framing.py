"""Messages on a stream: five bytes and a message each, whole or compressed; put together here."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from marserve.frontend.api.http import check_size
from marserve.frontend.errors import BadRequest
from marserve.worker.wire import Buffer

PREFIX = struct.Struct(">BI")
"""Whether a message is compressed, and its length in bytes."""

_WINDOW_BITS = {"identity": 0, "deflate": 15, "gzip": 31}
ENCODINGS = tuple(_WINDOW_BITS)
"""In which messages may be compressed."""


class MessageReader:
    """Puts messages together from pieces.

    Args:
        limit: Bytes that a message may have, also when it is decompressed.
        encoding: Of compressed messages, one of ``ENCODINGS``.
        expect: Called with the length in bytes of a message that is not there yet.
    """

    __slots__ = ("_encoding", "_expect", "_flag", "_length", "_limit", "_rest")

    def __init__(
        self, limit: int, encoding: str, expect: Callable[[int], None] | None = None
    ) -> None:
        self._limit = limit
        self._encoding = encoding
        self._expect = expect
        self._rest = bytearray()
        self._length: int | None = None
        self._flag = 0

    def __bool__(self) -> bool:
        """Returns whether a message has begun and not ended."""
        return bool(self._rest) or self._length is not None

    @property
    def size(self) -> int:
        """Bytes of a message that has begun."""
        return len(self._rest)

    def feed(self, piece: Buffer) -> list[Buffer]:
        """Takes a piece; returns the messages that it completes.

        Raises:
            TooLarge: If a message is too long.
            BadRequest: If it cannot be decompressed.
        """
        found: list[Buffer] = []
        self._rest += piece
        while (length := self._begun()) is not None:
            missing = length - len(self._rest)
            if missing > 0:
                if self._expect is not None:
                    self._expect(missing)
                break
            found.append(self._whole(length))
            self._length = None
        return found

    def _begun(self) -> int | None:
        """The length of the message that has begun; None if none has."""
        if self._length is None and len(self._rest) >= PREFIX.size:
            self._flag, length = PREFIX.unpack_from(self._rest)
            del self._rest[: PREFIX.size]
            check_size(length, self._limit)
            self._length = length
        return self._length

    def _whole(self, length: int) -> Buffer:
        if length == len(self._rest):
            message, self._rest = self._rest, bytearray()
        else:
            message = self._rest[:length]
            del self._rest[:length]
        if not self._flag:
            return message
        if self._flag != 1 or self._encoding == "identity":
            raise BadRequest(
                "A message is marked as compressed, but grpc-encoding says by nothing."
            )
        return decompress(message, self._encoding, self._limit)


def decompress(message: Buffer, encoding: str, limit: int) -> bytes:
    """Returns a compressed message as it was.

    Raises:
        BadRequest: If it is none.
        TooLarge: If it has more than ``limit`` bytes.
    """
    reader = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        whole = reader.decompress(message, limit + 1)
    except zlib.error:
        raise BadRequest(
            f"A message is not compressed by {encoding}, as grpc-encoding says."
        ) from None
    check_size(len(whole), limit)
    if not reader.eof:
        raise BadRequest(f"A message compressed by {encoding} is cut off.")
    return whole


def prefix(size: int) -> bytes:
    """Returns the five bytes before a message that is not compressed."""
    return PREFIX.pack(0, size)
