"""HPACK (RFC 7541): header blocks read with their table, and written without one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from marserve.frontend.http2.errors import Code, ConnectionFault
from marserve.frontend.http2.frames import TABLE_SIZE
from marserve.frontend.http2.huffman import decode as decode_huffman

Field = tuple[bytes, bytes]

_OVERHEAD = 32  # bytes that a field counts for, besides its own
_MOST_INTEGER_BYTES = 5

_STATIC_NAMES = (
    ":authority :method :method :path :path :scheme :scheme :status :status :status :status"
    " :status :status :status accept-charset accept-encoding accept-language accept-ranges accept"
    " access-control-allow-origin age allow authorization cache-control content-disposition"
    " content-encoding content-language content-length content-location content-range"
    " content-type cookie date etag expect expires from host if-match if-modified-since"
    " if-none-match if-range if-unmodified-since last-modified link location max-forwards"
    " proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie"
    " strict-transport-security transfer-encoding user-agent vary via www-authenticate"
)
_STATIC_VALUES = {
    2: b"GET",
    3: b"POST",
    4: b"/",
    5: b"/index.html",
    6: b"http",
    7: b"https",
    8: b"200",
    9: b"204",
    10: b"206",
    11: b"304",
    12: b"400",
    13: b"404",
    14: b"500",
    16: b"gzip, deflate",
}
_STATIC: list[Field] = [
    (name.encode(), _STATIC_VALUES.get(number, b""))
    for number, name in enumerate(_STATIC_NAMES.split(), 1)
]
STATUS_200 = b"\x88"
"""The field ``:status: 200``, which has a number of its own."""


class Decoder:
    """Reads the header blocks of one connection, one after the other.

    Args:
        most_bytes: A list of fields may count for; each for 32 bytes more than it has.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._table: deque[Field] = deque()
        self._size = 0
        self._limit = TABLE_SIZE
        self.changes = 0

    def decode(self, block: bytes) -> list[Field] | None:
        """Returns the fields of a block, or None if they are too many.

        ``changes`` grows if the block changed the table; another block of the same bytes then
        means something else. Too long a list is read to its end all the same, without being kept,
        for what later blocks refer to.

        Raises:
            ConnectionFault: If it is malformed.
        """
        fields: list[Field] = []
        at, left, size = 0, self._most, len(block)
        while at < size:
            first = block[at]
            if first & 0x80:
                number, at = _integer(block, at, 7)
                field = self._field(number)
            elif first & 0xE0 == 0x20:
                if fields or left != self._most:
                    raise _fault("a table size changes inside a block")
                number, at = _integer(block, at, 5)
                self._resize(number)
                continue
            else:
                keep = bool(first & 0x40)
                number, at = _integer(block, at, 6 if keep else 4)
                if number:
                    name = self._field(number)[0]
                else:
                    name, at = _text(block, at)
                value, at = _text(block, at)
                field = name, value
                if keep:
                    self._add(field)
            left -= len(field[0]) + len(field[1]) + _OVERHEAD
            if left >= 0:
                fields.append(field)
        return fields if left >= 0 else None

    def _field(self, number: int) -> Field:
        """The field of a number: static ones first, then the latest."""
        if 0 < number <= len(_STATIC):
            return _STATIC[number - 1]
        number -= len(_STATIC) + 1
        if not 0 <= number < len(self._table):
            raise _fault("a field refers to nothing")
        return self._table[number]

    def _add(self, field: Field) -> None:
        self.changes += 1
        self._table.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + _OVERHEAD
        self._evict()

    def _resize(self, limit: int) -> None:
        if limit > TABLE_SIZE:
            raise _fault(f"a table of {limit} bytes, of at most {TABLE_SIZE}")
        self.changes += 1
        self._limit = limit
        self._evict()

    def _evict(self) -> None:
        while self._size > self._limit:
            name, value = self._table.pop()
            self._size -= len(name) + len(value) + _OVERHEAD


def encode(fields: Iterable[Field]) -> bytes:
    """Returns a block that no table is needed for, so that it can be made before it is needed."""
    out = bytearray()
    for name, value in fields:
        out.append(0)
        for text in (name, value):
            _write_integer(out, len(text))
            out += text
    return bytes(out)


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Reads a number whose first ``bits`` bits are in the byte at ``at``."""
    limit = (1 << bits) - 1
    try:
        value = block[at] & limit
        at += 1
        if value < limit:
            return value, at
        for place in range(_MOST_INTEGER_BYTES):
            byte = block[at]
            at += 1
            value += (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value, at
    except IndexError:
        raise _fault("a block ends inside a field") from None
    raise _fault("a number is too large")


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    if at >= len(block):
        raise _fault("a block ends inside a field")
    coded = block[at] & 0x80
    length, begin = _integer(block, at, 7)
    end = begin + length
    if end > len(block):
        raise _fault("a block ends inside a field")
    text = block[begin:end]
    return (decode_huffman(text) if coded else text), end


def _write_integer(out: bytearray, value: int) -> None:
    if value < 0x7F:
        out.append(value)
        return
    out.append(0x7F)
    value -= 0x7F
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _fault(text: str) -> ConnectionFault:
    return ConnectionFault(Code.COMPRESSION_ERROR, text)
