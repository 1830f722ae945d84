"""What was sent to a worker before it could begin, and is not wanted any more, is not run."""

from __future__ import annotations

import importlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marserve.worker import wire
from marserve.worker.channel import Channel
from marserve.worker.loop import Loop

HANDLER = """ran = []

def handle(data, context):
    if data is None:
        return None
    ran.extend(context.get_all_request_header(i)["id"] for i in range(len(data)))
    return [len(row["body"]) for row in data]
"""


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    ours.settimeout(10)
    with ours, theirs:
        yield ours, theirs


def predict(*sizes: tuple[str, int]) -> list[wire.Buffer]:
    requests = [
        wire.Request(id, "predict", {"id": id}, [wire.Part("body", size)]) for id, size in sizes
    ]
    return wire.encode(wire.Predict(requests), [bytes(size) for _, size in sizes])


def cancel(*ids: str) -> list[wire.Buffer]:
    return wire.encode(wire.Cancel(list(ids)))


def answers(
    ends: tuple[socket.socket, socket.socket], tmp_path: Path, *frames: list[wire.Buffer]
) -> tuple[dict[str, Any], list[str]]:
    """What a worker says that finds all of this when it looks; statuses or bodies, and what ran."""
    ours, theirs = ends
    name = f"ahead_{time.monotonic_ns()}"
    (tmp_path / f"{name}.py").write_text(HANDLER)
    loop = Loop(Channel(theirs), wire.Load("m", "1.0", str(tmp_path), f"{name}.py", batch_size=4))
    for frame in frames:
        ours.sendall(b"".join(frame))
    ours.shutdown(socket.SHUT_WR)
    loop.run()
    theirs.close()
    decoder, found = wire.Decoder(), dict[str, Any]()
    while data := ours.recv(1 << 16):
        for message, body in decoder.feed(data):
            if isinstance(message, wire.Replies):
                at = 0
                for reply in message.replies:
                    text = bytes(body[at : at + reply.size])
                    found[reply.id] = text if reply.failure is None else reply.status
                    at += reply.size
    return found, importlib.import_module(name).ran


@pytest.mark.parametrize("size", [1, 300_000])  # the latter is read in two pieces
def test_batch_whose_caller_left_is_skipped(ends: Any, tmp_path: Path, size: int) -> None:
    frames = predict(("a", 5)), predict(("b", size)), cancel("b")
    found, ran = answers(ends, tmp_path, *frames, predict(("c", 7)))

    assert found == {"a": b"5", "b": 499, "c": b"7"}
    assert ran == ["a", "c"]


def test_members_that_stay_are_run(ends: Any, tmp_path: Path) -> None:
    batch = predict(("b", 2), ("c", 3), ("d", 4))
    found, ran = answers(ends, tmp_path, predict(("a", 1)), batch, cancel("c"))

    assert found == {"a": b"1", "b": b"2", "c": 499, "d": b"4"}
    assert ran == ["a", "b", "d"]


def test_caller_of_no_batch_that_is_here_does_no_harm(ends: Any, tmp_path: Path) -> None:
    frames = predict(("a", 1)), predict(("b", 2)), cancel("a"), predict(("c", 3)), cancel("x")
    found, ran = answers(ends, tmp_path, *frames, predict(("d", 4)))

    assert found == {"a": 499, "b": b"2", "c": b"3", "d": b"4"}
    assert ran == ["b", "c", "d"]
