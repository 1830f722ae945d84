"""``python -m marserve.frontend``: the server process, started by ``serve`` with its flags."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from marserve.archiver.errors import ConfigError, MarserveError
from marserve.frontend.config import ServerConfig, load_config
from marserve.frontend.control import READY_FD
from marserve.frontend.flags import parse_flags
from marserve.frontend.server import Server

_EXIT_S = 0.2


def main() -> None:
    """Runs the server; exit status 0 if it was stopped, 1 if it could not start."""
    report_ready = _ready_pipe()
    try:
        config = load_config(parse_flags(sys.argv[1:]), os.environ, Path.cwd())
        _hide_secrets()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(config, report_ready))
            # All is closed. A thread that still samples, downloads or hangs on a dead disk must not
            # keep the process alive.
            last = threading.Timer(_EXIT_S, os._exit, (0,))
            last.daemon = True
            last.start()
    except MarserveError as error:
        prefix = "Invalid configuration: " if isinstance(error, ConfigError) else ""
        print(f"{prefix}{error}", file=sys.stderr, flush=True)
        sys.exit(1)


async def _run(config: ServerConfig, report_ready: Callable[[], None]) -> None:
    server = Server(config, Path.cwd())
    try:
        await server.startup()
        await server.serve(report_ready)
    finally:
        await server.shutdown()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _ready_pipe() -> Callable[[], None]:
    """Returns what tells the process that started this one that the server is up."""
    text = os.environ.pop(READY_FD, "")
    if not text.isdecimal():
        return lambda: None
    fd = int(text)
    os.set_inheritable(fd, False)

    def report() -> None:
        with contextlib.suppress(OSError):  # nobody waits any more
            os.write(fd, b"\n")
            os.close(fd)

    return report


def _hide_secrets() -> None:
    """Workers run code of others: they must not inherit the server's keys."""
    for name in list(os.environ):
        if name.startswith("MARSERVE_") and name.endswith(("_KEY", "_KEY_FILE")):
            del os.environ[name]


if __name__ == "__main__":
    main()
