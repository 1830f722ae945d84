"""Frames of HTTP/2 (RFC 9113, sections 4 and 6): from what arrives to frames, and back to bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from marserve.frontend.http2.errors import Code, ConnectionFault

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client's connection begins with."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE = range(6)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(6, 10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS = 1, 2, 3
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 4, 5, 6

TABLE_SIZE = 4096  # of HPACK, what a peer may assume before we say anything; we say nothing
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_SIZE = 16_384
LARGEST_FRAME_SIZE = (1 << 24) - 1
LARGEST_WINDOW = (1 << 31) - 1

Frame = tuple[int, int, int, bytes, int]
"""Kind, flags, stream, payload, and how much padding was taken off it, in bytes."""

_HEAD = struct.Struct(">IBI")
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")
_SIZES = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}


class FrameReader:
    """Cuts what arrives into frames.

    The payload of a long DATA frame is handed on as it comes, as several frames of which only the
    last has the flags; every other frame is kept until it is whole.

    Args:
        most_bytes: The payload of a DATA frame may have; others, 16 KiB.
    """

    def __init__(self, most_bytes: int = DEFAULT_FRAME_SIZE) -> None:
        self._most = most_bytes
        self._rest = bytearray()
        self._need = 9
        self._left = 0  # of a DATA frame's payload
        self._open = (0, 0)  # its flags and its stream

    def __bool__(self) -> bool:
        """Returns whether a frame has begun and not ended."""
        return bool(self._rest or self._left)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields the frames that have become whole.

        Raises:
            ConnectionFault: If a frame is longer than allowed, or not as long as its kind is.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return
            data, self._rest = bytes(self._rest), bytearray()
        at, end = 0, len(data)
        if self._left:
            at = min(self._left, end)
            self._left -= at
            flags, stream = self._open
            yield DATA, 0 if self._left else flags, stream, data[:at], 0
        while end - at >= 9:
            word, flags, stream = _HEAD.unpack_from(data, at)
            size, kind, stream = word >> 8, word & 0xFF, stream & 0x7FFFFFFF
            if size > DEFAULT_FRAME_SIZE and (size > self._most or kind != DATA):
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            begin = at + 9
            if begin + size > end:
                if kind == DATA and not flags & PADDED:
                    self._left, self._open = begin + size - end, (flags, stream)
                    if begin < end:
                        yield DATA, 0, stream, data[begin:], 0
                    return
                self._need = 9 + size
                break
            at = begin + size
            payload = data[begin:at]
            if flags and kind in (DATA, HEADERS) and flags & (PADDED | HAS_PRIORITY):
                payload = _bare(kind, flags, payload)
            elif kind in _SIZES and size != _SIZES[kind]:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"frame {kind} of {size} bytes")
            yield kind, flags, stream, payload, size - len(payload)
        else:
            self._need = 9
        self._rest += data[at:]


def _bare(kind: int, flags: int, payload: bytes) -> bytes:
    """A payload without padding and priority."""
    begin, end = 0, len(payload)
    if flags & PADDED:
        begin, end = 1, end - (payload[0] if payload else end + 1)
    if kind == HEADERS and flags & HAS_PRIORITY:
        begin += 5
    if begin > end:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[begin:end]


def head(size: int, kind: int, flags: int, stream: int) -> bytes:
    """Returns the nine bytes before a payload of ``size`` bytes."""
    return _HEAD.pack(size << 8 | kind, flags, stream)


def settings(values: dict[int, int]) -> bytes:
    """Returns a SETTINGS frame."""
    payload = b"".join(_SETTING.pack(*each) for each in values.items())
    return head(len(payload), SETTINGS, 0, 0) + payload


def read_settings(payload: bytes) -> dict[int, int]:
    """Returns the settings of a frame, the last one of each name.

    Raises:
        ConnectionFault: If the payload or a value cannot be.
    """
    if len(payload) % _SETTING.size:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes")
    values: dict[int, int] = {}
    for name, value in _SETTING.iter_unpack(payload):
        if name == INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, f"a first window of {value} bytes")
        smallest, largest = DEFAULT_FRAME_SIZE, LARGEST_FRAME_SIZE
        if name == MAX_FRAME_SIZE and not smallest <= value <= largest:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"frames of {value} bytes")
        if name == ENABLE_PUSH and value > 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"ENABLE_PUSH of {value}")
        values[name] = value
    return values


def window_update(stream: int, size: int) -> bytes:
    """Returns a WINDOW_UPDATE frame; stream 0 for the connection."""
    return head(4, WINDOW_UPDATE, 0, stream) + _NUMBER.pack(size)


def rst_stream(stream: int, code: Code) -> bytes:
    """Returns a RST_STREAM frame."""
    return head(4, RST_STREAM, 0, stream) + _NUMBER.pack(code)


def ping(payload: bytes, ack: bool) -> bytes:
    """Returns a PING frame with eight bytes."""
    return head(8, PING, ACK if ack else 0, 0) + payload


def goaway(last_stream: int, code: Code, text: str = "") -> bytes:
    """Returns a GOAWAY frame."""
    payload = struct.pack(">II", last_stream, code) + text.encode("ascii", "replace")
    return head(len(payload), GOAWAY, 0, 0) + payload


def number(payload: bytes) -> int:
    """Returns the number at the begin of a payload."""
    value: int = _NUMBER.unpack_from(payload)[0]
    return value


SETTINGS_ACK = head(0, SETTINGS, ACK, 0)
