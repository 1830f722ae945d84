"""The file that tells which process is the server: one server for each temporary directory."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from marserve.archiver.errors import ConfigError, MarserveError

PID_FILE = ".model_server.pid"
SERVER_MODULE = "marserve.frontend"


class AlreadyRunning(MarserveError):
    """Another server holds the pid file.

    Args:
        pid: Its process id.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(
            f"marserve is already running (pid {pid}), please use serve --stop to stop it; "
            "a second server needs a temporary directory of its own: set TMPDIR"
        )


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie: in a container nobody may ever reap one."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class PidFile:
    """The pid file of a temporary directory.

    Args:
        directory: None for the system's.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.path = (directory or Path(tempfile.gettempdir())) / PID_FILE

    def read(self) -> int | None:
        """Returns the process id in the file, or None where there is none to be read."""
        try:
            text = self.path.read_text("ascii").strip()
        except (OSError, ValueError):
            return None
        return int(text) if text.isdecimal() and 0 < len(text) < 10 and int(text) > 0 else None

    def server(self) -> psutil.Process | None:
        """Returns the running server; None where the process is gone or is another program."""
        pid = self.read()
        try:
            if pid is None or has_ended(pid):
                return None
            process = psutil.Process(pid)
            return process if SERVER_MODULE in process.cmdline() else None
        except psutil.Error:
            return None

    def is_orphan(self) -> bool:
        """Whether the file is there, but its process is gone."""
        pid = self.read()
        return pid is not None and has_ended(pid)

    def claim(self) -> None:
        """Writes this process's id into the file.

        Raises:
            AlreadyRunning: If another server runs.
            ConfigError: If the file cannot be written.
        """
        for _ in range(3):
            try:
                # O_EXCL: of two servers that start at once one wins, and no link is followed.
                fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                running = self.server()
                if running is not None and running.pid != os.getpid():
                    raise AlreadyRunning(running.pid) from None
                self._unlink()
                continue
            except OSError as error:
                raise self._unwritable(error) from None
            with os.fdopen(fd, "w") as file:
                file.write(str(os.getpid()))
            return
        raise ConfigError(str(self.path), "other servers keep writing this file")

    def release(self) -> None:
        """Removes the file, if it names this process."""
        if self.read() == os.getpid():
            self.remove()

    def remove(self) -> None:
        """Removes the file, if it is there and may be removed."""
        with suppress(OSError):
            self.path.unlink()

    def _unlink(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> ConfigError:
        hint = "set TMPDIR to a directory of your own"
        return ConfigError(str(self.path), f"cannot be written: {error.strerror}", hint)
