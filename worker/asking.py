"""A worker's questions to its server: each over a connection that is its own while it lasts."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

from marserve.handlers.asking import NobodyToAsk, Piece, Question
from marserve.worker import wire
from marserve.worker.channel import Channel

_MOST_IDLE = 8


class Asking:
    """Asks, from any thread.

    Args:
        directory: Holds the server's socket; empty if it has none.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._idle: list[Channel] = []

    def __call__(self, question: Question) -> Iterator[Piece]:
        """Yields the pieces of the answer as they come; an iterator that is left cancels the rest.

        Raises:
            NobodyToAsk: If the server cannot be reached, or ends.
        """
        channel = self._take()
        done = False
        try:
            channel.send(_message(question), [raw for _, _, raw in question.parts])
            while not done:
                received = channel.receive()
                if received is None:
                    raise NobodyToAsk(f"{question.model}: the server has closed the connection")
                message, body = received
                if not isinstance(message, wire.Replies):
                    raise NobodyToAsk(f"{question.model}: the server answered something else")
                reply = message.replies[0]
                done = reply.last
                text = reply.failure.message if reply.failure is not None else ""
                if done:  # before it is yielded: who asks for one piece alone never comes back
                    self._give_back(channel)
                yield Piece(reply.status, reply.headers, body, text, reply.last)
        except OSError as error:
            raise NobodyToAsk(f"{question.model}: {error.strerror}") from None
        finally:
            if not done:
                channel.close()

    def _take(self) -> Channel:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        if not self._directory:
            raise NobodyToAsk("the server answers no questions of models")
        # By way of the directory, for a path to a socket must be short.
        folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(f"/proc/self/fd/{folder}/{wire.ASK_SOCKET}")
        except BaseException:
            sock.close()
            raise
        finally:
            os.close(folder)
        return Channel(sock)

    def _give_back(self, channel: Channel) -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(channel)
                return
        channel.close()


def _message(question: Question) -> wire.Ask:
    parts = [wire.Part(name, len(raw), kind) for name, kind, raw in question.parts]
    return wire.Ask(
        question.command,
        question.model,
        question.version,
        question.headers,
        parts,
        question.timeout_s,
    )
