"""What can be wrong with what a client sends: for its connection, or for one stream of it."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """Error codes of HTTP/2 (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionFault(Exception):
    """The connection cannot go on; its peer is told why and it is closed.

    Args:
        code: As sent in GOAWAY.
        text: What was wrong, for the peer's log.
    """

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFault(Exception):
    """One stream cannot go on; the others do.

    Args:
        stream: Its number.
        code: As sent in RST_STREAM.
    """

    def __init__(self, stream: int, code: Code) -> None:
        super().__init__(f"stream {stream}: {code.name}")
        self.stream = stream
        self.code = code
