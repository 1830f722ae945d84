"""The wire between the server and its workers: bytes only, used by both sides, without any I/O.

A frame is ``u32 header length, u64 body length`` (little-endian), a msgpack header (one of the
message structs below, tagged) and the raw body: the bytes of all parts, end to end, in the order in
which the header names them. Payloads are never re-encoded; nothing executable crosses the border.

    server -> worker   Load, Predict, Cancel, Threads
    worker -> server   Loaded, LoadFailed, Replies, Metrics

A model that asks others does so over a connection of its own, by ``Ask``, answered by ``Replies``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from marserve.archiver.errors import MarserveError

PROTOCOL_VERSION = 1
MAX_HEADER_BYTES = 64 << 20
ASK_SOCKET = "ask"
"""Name of the socket for ``Ask``, in the directory that ``Load`` tells."""
_PREFIX = struct.Struct("<IQ")
_CHUNK_BYTES = 256 << 10

Buffer = bytes | bytearray | memoryview


class WireError(MarserveError):
    """The other side sent no frame of this protocol; the connection is of no more use."""


class Part(msgspec.Struct, array_like=True, frozen=True):
    """One named piece of a request; its bytes stand in the frame's body.

    Args:
        name: Form field name, or ``body`` for a plain request body.
        size: Length in bytes.
        content_type: Media type without parameters, or None where the client gave none.
    """

    name: str
    size: int
    content_type: str | None = None


class Request(msgspec.Struct, array_like=True, frozen=True):
    """One request of a batch.

    Args:
        id: The server's request id, unique while the request lives.
        command: ``predict``, ``explain`` or ``describe``.
        headers: As the client wrote them, plus those that the server adds.
        parts: What the body consists of.
    """

    id: str
    command: str
    headers: dict[str, str]
    parts: list[Part]


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """Why a request has no result.

    Args:
        type: Kind, one word, such as ``handler``, ``result_count``, ``memory`` or ``prediction``.
        message: For the client: no paths, no traceback.
        traceback: Of the handler, where ``Load`` asks for it; also for the client.
    """

    type: str
    message: str
    traceback: str = ""


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """One chunk of one request's answer; a unary answer is a single chunk with ``last``."""

    id: str
    status: int = 200
    size: int = 0
    last: bool = True
    phrase: str = ""
    headers: dict[str, str] = {}
    failure: Failure | None = None


class Load(msgspec.Struct, tag_field="op", tag="load", frozen=True):
    """Load a model; the first message to a worker.

    Args:
        handler: Handler string of the manifest, ``module[:function]`` or the name of a built-in.
        gpu_id: Index of the device, None for the CPU.
        model_config: The archive's model-config.yaml as plain values.
        manifest: The archive's manifest as plain values.
        threads: Compute threads of this worker; 0 to leave them as they are.
        max_response_bytes: Largest body of one answer; a larger one fails its request alone.
        rank: Of this process among those that are one worker; 0 for the one that answers.
        ranks: How many they are.
        tracebacks: Whether failures carry the handler's traceback.
        asked_at: Directory with the socket at which the server answers ``Ask``; empty for none.
    """

    model_name: str
    model_version: str
    model_dir: str
    handler: str
    manifest: dict[str, Any] = {}
    model_config: dict[str, Any] = {}
    batch_size: int = 1
    gpu_id: int | None = None
    envelope: str | None = None
    limit_max_image_pixels: bool = True
    decode_input_request: bool = True
    max_response_bytes: int = 1 << 40
    threads: int = 0
    metrics_config: dict[str, Any] = {}
    rank: int = 0
    ranks: int = 1
    tracebacks: bool = False
    asked_at: str = ""
    protocol: int = PROTOCOL_VERSION


class Predict(msgspec.Struct, tag_field="op", tag="predict", frozen=True):
    """Run one batch."""

    requests: list[Request]


class Cancel(msgspec.Struct, tag_field="op", tag="cancel", frozen=True):
    """The callers of these requests are gone; what has not begun need not begin."""

    ids: list[str]


class Threads(msgspec.Struct, tag_field="op", tag="threads", frozen=True):
    """Compute with so many threads from now on: the number of workers has changed."""

    count: int


class Loaded(msgspec.Struct, tag_field="op", tag="loaded", frozen=True):
    """The model can serve; ``follows`` if rank 0 tells this rank all that there is to do."""

    pid: int
    follows: bool = False
    protocol: int = PROTOCOL_VERSION


class LoadFailed(msgspec.Struct, tag_field="op", tag="load_failed", frozen=True):
    """The model cannot be loaded; the worker exits after this.

    Args:
        type: Exception class name, such as ``ModuleNotFoundError``.
        message: The exception's text.
        traceback: For the log and for describe; never for a client of inference.
        memory: Whether memory ran out, on the host or the device.
    """

    type: str
    message: str
    traceback: str
    memory: bool = False


Stage = Annotated[int, msgspec.Meta(ge=0, le=3)]


class Replies(msgspec.Struct, tag_field="op", tag="replies", frozen=True):
    """Chunks of answers, of one or several requests.

    Args:
        took_s: Seconds that the batch spent in the handler, with its last answers; else 0.
        spans: Calls of the handler's stages since the last answers: number of the stage
            (``worker/stages.py``) and seconds.
    """

    replies: list[Reply]
    took_s: float = 0.0
    spans: list[tuple[Stage, float]] = []


class Sample(msgspec.Struct, array_like=True, frozen=True):
    """One value that a handler reported.

    Args:
        unit: As in the metrics configuration, such as ``ms`` or ``count``.
        kind: ``counter``, ``gauge`` or ``histogram``.
        dimensions: Names and values, in order.
    """

    name: str
    value: float
    unit: str
    kind: str
    dimensions: list[tuple[str, str]]
    request_ids: str = ""


class Ask(msgspec.Struct, tag_field="op", tag="ask", frozen=True):
    """A question of a running model about, or to, another one; the first on its connection.

    Args:
        command: ``predict``, ``ready``, ``load`` or ``unload``.
        version: Empty for the one that answers by default.
        timeout_s: None for the model's own limit.
    """

    command: str
    model: str
    version: str
    headers: dict[str, str]
    parts: list[Part]
    timeout_s: float | None = None


class Metrics(msgspec.Struct, tag_field="op", tag="metrics", frozen=True):
    """Values that the handler reported since the last message."""

    samples: list[Sample]


Message = Load | Predict | Cancel | Threads | Loaded | LoadFailed | Replies | Ask | Metrics

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message, body: Sequence[Buffer] = ()) -> list[Buffer]:
    """Returns a frame as buffers to be written in order; the body's are passed through uncopied."""
    header = _encoder.encode(message)
    size = sum(map(len, body)) if body else 0
    return [_PREFIX.pack(len(header), size) + header, *body]


class Decoder:
    """Turns received bytes into messages; the caller owns the socket.

    Read into ``get_buffer()``, say how much was read with ``commit()``. Small frames are cut out of
    one reused buffer; a large body is received straight into the ``bytearray`` that is handed out.

    Args:
        max_body_bytes: Largest body accepted, checked before anything is allocated.
    """

    def __init__(self, max_body_bytes: int = 1 << 40) -> None:
        self._max_body_bytes = max_body_bytes
        self._small = bytearray(_CHUNK_BYTES)
        self._begin = self._end = 0
        self._message: Message | None = None
        self._body = bytearray()
        self._filled = 0

    def get_buffer(self) -> memoryview:
        """Returns where the next bytes go; never empty."""
        if self._message is not None:
            return memoryview(self._body)[self._filled :]
        return memoryview(self._small)[self._end :]

    def commit(self, count: int) -> list[tuple[Message, bytearray]]:
        """Takes ``count`` bytes written into ``get_buffer()``; returns the messages now complete.

        Raises:
            WireError: If the bytes are no frames of this protocol.
        """
        if self._message is not None:
            self._filled += count
            if self._filled < len(self._body):
                return []
            message, self._message = self._message, None
            return [(message, self._body)]
        self._end += count
        return self._cut()

    def feed(self, data: Buffer) -> list[tuple[Message, bytearray]]:
        """Takes bytes that were received elsewhere; like ``commit`` otherwise."""
        out: list[tuple[Message, bytearray]] = []
        view = memoryview(data)
        while view:
            buffer = self.get_buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            del buffer  # an exported view would forbid the buffer to grow
            out += self.commit(count)
            view = view[count:]
        return out

    def _cut(self) -> list[tuple[Message, bytearray]]:
        out: list[tuple[Message, bytearray]] = []
        while (ready := self._end - self._begin) >= _PREFIX.size:
            header_size, body_size = _PREFIX.unpack_from(self._small, self._begin)
            if header_size > MAX_HEADER_BYTES or body_size > self._max_body_bytes:
                raise WireError(f"frame of {header_size} + {body_size} bytes exceeds the limits")
            start = self._begin + _PREFIX.size
            if ready < _PREFIX.size + header_size:
                self._make_room(_PREFIX.size + header_size)
                return out
            message = self._header(start, header_size)
            start += header_size
            here = min(self._end - start, body_size)
            first = memoryview(self._small)[start : start + here]
            self._begin = start + here
            if here < body_size:
                self._expect(message, first, body_size)
                return out
            out.append((message, bytearray(first)))
        self._make_room(_PREFIX.size)
        return out

    def _header(self, start: int, size: int) -> Message:
        try:
            return _decoder.decode(memoryview(self._small)[start : start + size])
        except msgspec.DecodeError as error:
            raise WireError(f"frame header cannot be read: {error}") from error

    def _expect(self, message: Message, first: memoryview, size: int) -> None:
        """The rest of a large body goes straight to its place."""
        self._message, self._body, self._filled = message, bytearray(size), len(first)
        self._body[: len(first)] = first
        self._begin = self._end = 0

    def _make_room(self, size: int) -> None:
        """Moves what is left to the front; grows the buffer if ``size`` bytes need it."""
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._begin:
            rest = bytes(memoryview(self._small)[self._begin : self._end])
            self._small[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        if size > len(self._small):
            self._small = self._small + bytes(size - len(self._small))
