"""The Huffman code of HPACK (RFC 7541, appendix B): decoding alone, we send plain text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from marserve.frontend.http2.errors import Code, ConnectionFault

_END = 256
_MOST_PADDING_BITS = 7

# The symbols of each code length in bits, in the order of their codes: the code is canonical, so
# that lengths and order say all. The end of the string is the last of the longest.
_SYMBOLS = {
    5: "303132616365696f7374",
    6: "20252d2e2f333435363738393d415f62646667686c6d6e707275",
    7: "3a42434445464748494a4b4c4d4e4f5051525354555657596a6b71767778797a",
    8: "262a2c3b585a",
    10: "212228293f",
    11: "272b7c",
    12: "233e",
    13: "0024405b5d7e",
    14: "5e7d",
    15: "3c607b",
    19: "5cc3d0",
    20: "808283a2b8c2e0e2",
    21: "99a1a7acb0b1b3d1d8d9e3e5e6",
    22: "8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9",
    23: "0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef",
    24: "098e9091949fabced7e1eced",
    25: "c7cfeaeb",
    26: "c0c1c8c9cacdd2d5dadbeef0f2f3ff",
    27: "cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe",
    28: "020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9",
    30: "0a0d16",
}

_Step = tuple[int, bytes]
"""Next state and what was decoded; a state below zero is none."""


def decode(data: bytes) -> bytes:
    """Returns the text that a coded string stands for.

    Raises:
        ConnectionFault: If it is none: with an end inside it, or with other padding than ones.
    """
    steps, may_end = _machine()
    state, out = 0, []
    for byte in data:
        state, first = steps[state << 4 | byte >> 4]
        if state < 0:
            break
        state, second = steps[state << 4 | byte & 15]
        if state < 0:
            break
        out.append(first)
        out.append(second)
    if state not in may_end:
        raise ConnectionFault(Code.COMPRESSION_ERROR, "a Huffman string is malformed")
    return b"".join(out)


@cache
def _machine() -> tuple[list[_Step], frozenset[int]]:
    """Returns the step from each state at each four bits, and the states a string may end in."""
    nodes: list[list[int]] = [[0, 0]]  # above zero a node, below a symbol, less one
    for code, length, symbol in _codes():
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            if not nodes[node][bit]:
                nodes[node][bit] = len(nodes)
                nodes.append([0, 0])
            node = nodes[node][bit]
        nodes[node][code & 1] = -1 - symbol
    steps = [_step(nodes, state, bits) for state in range(len(nodes)) for bits in range(16)]
    may_end, node = [0], 0
    for _ in range(_MOST_PADDING_BITS):
        node = nodes[node][1]
        may_end.append(node)
    return steps, frozenset(may_end)


def _codes() -> Iterator[tuple[int, int, int]]:
    """Yields code, its length in bits and its symbol."""
    code, before = 0, 0
    for length, symbols in _SYMBOLS.items():
        code <<= length - before
        for symbol in bytes.fromhex(symbols):
            yield code, length, symbol
            code += 1
        before = length
    yield code, before, _END


def _step(nodes: list[list[int]], state: int, bits: int) -> _Step:
    out = b""
    for shift in (3, 2, 1, 0):
        state = nodes[state][bits >> shift & 1]
        if state == -1 - _END:
            return -1, b""
        if state < 0:
            out += bytes([-1 - state])
            state = 0
    return state, out
