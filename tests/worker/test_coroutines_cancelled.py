"""Callers of a coroutine handler that leave: each of their requests gets its last word."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread

from marserve.worker import wire
from marserve.worker.channel import Channel
from marserve.worker.loop import Loop

HANDLER = """import asyncio
import time

class Wishes:
    async def handle(self, data, context):
        wish = data[0]["body"].decode()
        if wish == "busy":
            time.sleep(0.2)  # meanwhile nothing else begins, and more arrives
        if wish == "forever":
            await asyncio.Event().wait()
        return [wish]
"""


def predict(id: str, wish: str) -> bytes:
    request = wire.Request(id, "predict", {}, [wire.Part("body", len(wish))])
    return b"".join(wire.encode(wire.Predict([request]), [wish.encode()]))


def test_one_that_left_before_its_request_began_is_answered(tmp_path: Path) -> None:
    (tmp_path / "coroutines_cancelled.py").write_text(HANDLER)
    load = wire.Load("m", "1.0", str(tmp_path), "coroutines_cancelled.py", batch_size=1)
    load.model_config["asyncCommunication"] = True
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    loop = Loop(Channel(theirs), load)
    worker = Thread(target=loop.run, daemon=True)
    with ours, theirs:
        ours.sendall(predict("a", "busy") + predict("b", "forever"))
        ours.sendall(b"".join(wire.encode(wire.Cancel(["b"]))) + predict("c", "last"))
        worker.start()
        decoder, found = wire.Decoder(), dict[str, int]()
        while len(found) < 3:
            for message, _ in decoder.feed(ours.recv(1 << 16)):
                if isinstance(message, wire.Replies):
                    found |= {reply.id: reply.status for reply in message.replies}
        ours.shutdown(socket.SHUT_WR)
        worker.join(10)

    assert found == {"a": 200, "b": 499, "c": 200}
    assert not worker.is_alive()
