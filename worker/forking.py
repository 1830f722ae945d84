"""What the server and a template process say to each other, one msgpack message a packet.

server -> template   Anticipate at most once; Preload once; Fork for each worker, with three
descriptors: the worker's socket, its stdout and its stderr
template -> server   Preloaded; Forked and, when it has ended, Exited for each worker
"""

from __future__ import annotations

import msgspec

MAX_PACKET_BYTES = 1 << 16


class Preload(msgspec.Struct, tag_field="op", tag="preload", frozen=True):
    """Import the handler of a model."""

    handler: str
    model_dir: str


class Anticipate(msgspec.Struct, tag_field="op", tag="anticipate", frozen=True):
    """Import the large libraries that an archive will need, while it is still being unpacked.

    There is no answer. ``archive`` is the path of a zip file.
    """

    archive: str


class Fork(msgspec.Struct, tag_field="op", tag="fork", frozen=True):
    """Start a worker.

    Args:
        name: Its title in the list of processes.
        environment: Variables that it has besides the template's.
    """

    name: str
    environment: dict[str, str] = {}


class Preloaded(msgspec.Struct, tag_field="op", tag="preloaded", frozen=True):
    """The imports are done.

    Args:
        refusal: Why workers cannot be forked from here; empty if they can.
    """

    refusal: str = ""


class Forked(msgspec.Struct, tag_field="op", tag="forked", frozen=True):
    """A worker runs."""

    name: str
    pid: int


class Exited(msgspec.Struct, tag_field="op", tag="exited", frozen=True):
    """A worker has ended; ``status`` is negative for a signal."""

    pid: int
    status: int


Packet = Anticipate | Preload | Fork | Preloaded | Forked | Exited

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Packet).decode
