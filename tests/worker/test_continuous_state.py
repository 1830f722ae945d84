"""What a handler keeps of a request in ``context.cache`` goes when its caller has left."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread

from marserve.worker import wire
from marserve.worker.channel import Channel
from marserve.worker.loop import Loop

HANDLER = """class Steps:
    def handle(self, data, context):
        ids = [context.get_request_id(index) for index in range(len(data))]
        for id, row in zip(ids, data, strict=True):
            if row:
                context.cache[id] = "state"
        ends = [id == "last" for id in ids]
        context.stopping_criteria = [lambda _, end=end: end for end in ends]
        return [",".join(sorted(context.cache))] * len(data)
"""


def predict(id: str) -> bytes:
    request = wire.Request(id, "predict", {}, [wire.Part("body", 1)])
    return b"".join(wire.encode(wire.Predict([request]), [b"x"]))


def test_state_of_one_that_left_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "continuous_state.py").write_text(HANDLER)
    load = wire.Load("m", "1.0", str(tmp_path), "continuous_state.py", batch_size=4)
    load.model_config["continuousBatching"] = True
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    loop = Loop(Channel(theirs), load)
    worker = Thread(target=loop.run, daemon=True)
    decoder = wire.Decoder()

    def answer(id: str) -> tuple[int, str]:
        while True:
            for message, body in decoder.feed(ours.recv(1 << 16)):
                at = 0
                for reply in message.replies if isinstance(message, wire.Replies) else ():
                    text = bytes(body[at : at + reply.size]).decode()
                    at += reply.size
                    if reply.id == id and reply.last:
                        return reply.status, text

    with ours, theirs:
        worker.start()
        ours.sendall(predict("gone") + b"".join(wire.encode(wire.Cancel(["gone"]))))
        assert answer("gone") == (499, "")
        ours.sendall(predict("last"))
        found = answer("last")
        ours.shutdown(socket.SHUT_WR)
        worker.join(10)

    assert found == (200, "last")
    assert not worker.is_alive()
