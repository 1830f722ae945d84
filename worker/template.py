"""A template process: imports what a model's workers will need, then forks them.

A forked worker has the interpreter and the libraries already and shares their memory with its
siblings. It loads its weights itself, mapped from the same file, so they are shared as well. A
template never computes: it has no thread pool that a fork would tear apart, and no device.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import threading

from marserve.worker.forking import (
    MAX_PACKET_BYTES,
    Anticipate,
    Exited,
    Fork,
    Forked,
    Preload,
    Preloaded,
    decode,
    encode,
)
from marserve.worker.imports import preload_zip
from marserve.worker.transformers_names import keep_names


def run(control: socket.socket) -> int:
    """Serves the server's wishes until it closes the socket; returns the exit status."""
    _title("marserve.template")
    keep_names()
    gc.disable()  # it would walk all that is imported, again and again, and find nothing to free
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the server says when it is over
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _reap(control)
        if control.fileno() in ready:
            data, fds, _, _ = socket.recv_fds(control, MAX_PACKET_BYTES, 3)
            if not data:
                return 0
            message = decode(data)
            if isinstance(message, Anticipate):
                preload_zip(message.archive)
            elif isinstance(message, Preload):
                control.send(encode(Preloaded(_preload(message))))
            elif isinstance(message, Fork):
                pid = _fork(control, message, fds, (wake, waker))
                control.send(encode(Forked(message.name, pid)))


def _preload(message: Preload) -> str:
    """Imports a handler; returns why this process must not fork, or nothing."""
    from marserve.worker import compat
    from marserve.worker.loader import preload_handler

    compat.activate()
    try:
        preload_handler(message.handler, message.model_dir)
    except Exception as error:
        return f"{type(error).__name__} while its handler is imported"  # a worker reports it whole
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "its handler uses the device while it is imported"
    if threading.active_count() > 1:
        return "its handler starts threads while it is imported"
    gc.freeze()  # the workers' collectors would write into every shared page
    return ""


def _fork(control: socket.socket, order: Fork, fds: list[int], own: tuple[int, int]) -> int:
    pid = os.fork()
    if pid:
        for fd in fds:
            os.close(fd)
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        for fd in own:
            os.close(fd)
        os.environ.update(order.environment)
        gc.enable()
        status = _work(order.name, fds)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # never back into the template's loop


def _work(name: str, fds: list[int]) -> int:
    from marserve.worker.__main__ import work

    sock, out, err = fds
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    _title(f"marserve.worker {name}")
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()  # siblings must not draw the same numbers
    return work(sock)


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        control.send(encode(Exited(pid, os.waitstatus_to_exitcode(status))))


def _title(text: str) -> None:
    """What ``ps`` shows; the process's environment, which lies behind it, stays readable."""
    os.environ["SPT_NOENV"] = "1"
    import setproctitle

    setproctitle.setproctitle(text)


if __name__ == "__main__":
    sys.exit(run(socket.socket(fileno=int(sys.argv[1]))))
