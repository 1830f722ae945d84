"""What ``serve`` does to the server process: start it, wait for it, stop it, ask it how it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click
import psutil

from marserve.archiver.errors import MarserveError
from marserve.frontend.flags import server_argv
from marserve.frontend.pidfile import AlreadyRunning, PidFile, has_ended

READY_FD = "MARSERVE_READY_FD"
"""Environment variable: the pipe into which the server writes once it is up."""

NOT_RUNNING = 3
"""Exit status of ``--status`` where no server runs, as for init scripts."""

_STOP_MARGIN_S = 30.0
_STOP_UNKNOWN_S = 90.0
_POLL_S = 0.02


def start(flags: Mapping[str, Any], *, foreground: bool) -> int:
    """Starts the server; returns once it is up, or never where it stays in the foreground.

    Args:
        flags: Checked already; as for ``load_config``.
        foreground: Whether this process becomes the server.

    Returns:
        Exit status: 0 if the server is up, 1 if it ended before.

    Raises:
        AlreadyRunning: If a server runs.
    """
    pid_file = PidFile()
    running = pid_file.server()
    if running is not None:
        raise AlreadyRunning(running.pid)
    if pid_file.is_orphan():
        click.echo("Removing orphan pid file.")
        pid_file.remove()
    argv = server_argv(flags)
    if foreground:
        sys.stdout.flush()
        # Same process id: whoever started this can stop it.
        os.execve(argv[0], argv, _environment())  # noqa: S606
    return _start_in_background(argv)


def stop() -> int:
    """Stops the server and waits until it has ended.

    Returns:
        Exit status: 0 if no server runs any more, 1 if it still does.
    """
    pid_file = PidFile()
    process = pid_file.server()
    if process is None:
        if pid_file.is_orphan():
            click.echo("Removing orphan pid file.")
            pid_file.remove()
        click.echo("marserve is not currently running.")
        return 0
    wait_s = _patience_s(process)
    try:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
    except psutil.AccessDenied:
        text = f"marserve (pid {process.pid}) belongs to another user and cannot be stopped"
        raise MarserveError(text) from None
    if not _ended(process.pid, wait_s):
        text = f"marserve (pid {process.pid}) is still stopping after {wait_s:g} s"
        click.echo(f"{text}; serve --stop once more ends it at once", err=True)
        return 1
    if pid_file.read() == process.pid:
        pid_file.remove()
    click.echo("marserve has stopped.")
    return 0


def status() -> int:
    """Prints how the server is.

    Returns:
        Exit status: 0 if it runs, 3 if not.
    """
    process = PidFile().server()
    if process is None:
        click.echo("marserve is not running.")
        return NOT_RUNNING
    from marserve.frontend.status import describe_server  # a server that starts needs none of it

    for line in describe_server(process):
        click.echo(line)
    return 0


def _environment() -> dict[str, str]:
    """The server's: gRPC's fork support would put a line on the console for every worker.

    It is read when gRPC is imported. No child of the server goes on with gRPC.
    """
    return {"GRPC_ENABLE_FORK_SUPPORT": "0", **os.environ}


def _start_in_background(argv: list[str]) -> int:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as pipe:
        # stdout and stderr are inherited: whoever reads them sees the log, as with TorchServe.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(write_end,),
            env=_environment() | {READY_FD: str(write_end)},
        )
        os.close(write_end)
        try:
            up = pipe.read(1) != b""  # the end of the file, if the process dies first
        except KeyboardInterrupt:
            process.terminate()
            up = False
    if up:
        process.returncode = 0  # it goes on without us; nothing is left to wait for
        return 0
    code = process.wait()
    cause = f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
    click.echo(f"marserve did not start: the server process {cause}", err=True)
    return 1


def _ended(pid: int, timeout_s: float) -> bool:
    """Waits until a process has ended; tells whether it has, in that time."""
    deadline = time.monotonic() + timeout_s
    while not has_ended(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _patience_s(process: psutil.Process) -> float:
    """Returns for how long the server may take to stop."""
    from marserve.frontend.status import server_config  # likewise

    try:
        return server_config(process).drain_timeout + _STOP_MARGIN_S
    except (MarserveError, psutil.Error, OSError):
        return _STOP_UNKNOWN_S
