"""The worker process; its one argument is the descriptor of the socket to the server."""

from __future__ import annotations

import signal
import socket
import sys

from marserve.worker.channel import Channel
from marserve.worker.loop import serve
from marserve.worker.ranks import begin_rank, end_rank, is_rank
from marserve.worker.transformers_names import keep_names


def work(fd: int) -> int:
    """Serves over a socket until the server closes it.

    Args:
        fd: Descriptor of the socket.

    Returns:
        The exit status.
    """
    # Ctrl-C and a stop of the whole process group are the server's to handle: it lets accepted
    # requests finish and then closes the socket. A function, for children would inherit SIG_IGN.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if is_rank():
        begin_rank()
    try:
        return serve(Channel(socket.socket(fileno=fd)))
    except (BrokenPipeError, ConnectionResetError):
        return 0  # the server is gone, so nobody waits for an answer


if __name__ == "__main__":
    keep_names()
    status = work(int(sys.argv[1]))
    if is_rank():
        end_rank(status)
    sys.exit(status)
