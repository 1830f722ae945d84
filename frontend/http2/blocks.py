"""Header blocks of a connection: put together from their frames, decoded, and understood once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from marserve.frontend.http2 import frames
from marserve.frontend.http2.errors import Code, ConnectionFault
from marserve.frontend.http2.hpack import Decoder, Field

_MOST_LIST_BYTES = 32 << 10  # of a list of fields; a longer one is refused
_MOST_BLOCK_BYTES = 64 << 10  # of a block; a longer one ends the connection
_MOST_FRAMES = 16  # of a block
_MOST_KNOWN = 16  # blocks that are kept, with what they mean
_LONGEST_KNOWN_BYTES = 4 << 10  # of their fields


class Blocks:
    """Reads the blocks of one connection.

    Args:
        read: Says what a list of fields means; the same object for the same bytes.
    """

    most_bytes = _MOST_LIST_BYTES

    def __init__(self, read: Callable[[list[Field] | None], Any]) -> None:
        self._read = read
        self._decoder = Decoder(_MOST_LIST_BYTES)
        self._known: dict[bytes, Any] = {}
        self._block = b""
        self._pieces = bytearray()
        self._frames = 0
        self._stream = 0
        self.open = False
        self.ended = False

    def take(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        """Takes a frame; returns whether it ends a block. ``ended`` then says if it ends a stream.

        Raises:
            ConnectionFault: If it is not its turn, or the block is too long.
        """
        if self.open:
            if kind != frames.CONTINUATION or stream != self._stream:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "a header block is interrupted")
        elif kind != frames.HEADERS or not stream:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a header block without a begin")
        else:
            self.ended = bool(flags & frames.END_STREAM)
            if flags & frames.END_HEADERS:
                self._block = payload
                return True
            self.open, self._stream, self._frames = True, stream, 0
            self._pieces = bytearray()
        self._pieces += payload
        self._frames += 1
        if len(self._pieces) > _MOST_BLOCK_BYTES or self._frames > _MOST_FRAMES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block without an end")
        if flags & frames.END_HEADERS:
            self._block, self._pieces, self.open = bytes(self._pieces), bytearray(), False
            return True
        return False

    def head(self) -> Any:
        """Returns what the last block means.

        Raises:
            ConnectionFault: If it is malformed.
        """
        block = self._block
        known = self._known.get(block)
        if known is not None:
            return known
        changes = self._decoder.changes
        fields = self._decoder.decode(block)
        meaning = self._read(fields)
        if self._decoder.changes != changes:
            self._known.clear()  # numbers of fields mean others now
        elif fields and sum(len(n) + len(v) for n, v in fields) <= _LONGEST_KNOWN_BYTES:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[block] = meaning
        return meaning
