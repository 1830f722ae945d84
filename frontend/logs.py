"""The server's logs: access_log.log, model_log.log and ts_log.log, and the console.

ts_log.log      what the server says          also on the console, from INFO on
model_log.log   what the workers print        also on the console
access_log.log  a line a request

Each line is text, as TorchServe formats it, or with ``log_format=json`` an object.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from marserve.archiver.errors import ConfigError
from marserve.frontend.json_lines import access_line, server_line, worker_line
from marserve.frontend.line_writer import LineWriter, write_console

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig

MAX_BYTES, KEPT_FILES = 100 << 20, 5
_ACCESS_INTERVAL_S = 0.25
_INTERVAL_S = 0.02
_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_STREAMS = {"stdout": "INFO ", "stderr": "WARN "}
_CONTROLS = {c: f"\\x{c:02x}" for c in (*range(9), *range(11, 32), *range(127, 160))}


def visible(text: str) -> str:
    """Returns a text whose control characters do nothing to a terminal; tab and newline stay."""
    return text if text.isprintable() else text.translate(_CONTROLS)


class Clock:
    """Formats moments as ``2026-11-21T08:03:59,123``, local time.

    The text of a millisecond is made once, and its part up to the second once a second.
    """

    def __init__(self) -> None:
        self._millisecond = self._second = -1
        self._text = self._date = ""

    def now(self) -> str:
        """Returns the text of this moment."""
        return self.format(time.time())

    def format(self, epoch_s: float) -> str:
        """Returns the text of a moment, given in seconds since the epoch."""
        millisecond = int(epoch_s * 1000)
        if millisecond != self._millisecond:
            second, rest = divmod(millisecond, 1000)
            if second != self._second:
                self._date = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second))
                self._second = second
            self._text = f"{self._date},{rest:03}"
            self._millisecond = millisecond
        return self._text


class AccessLog:
    """Writes ``date - /127.0.0.1:5 "GET /ping HTTP/1.1" 200 0`` for each request.

    Args:
        writer: Where to; None to write nothing.
        as_json: Whether each line is a JSON object.
    """

    def __init__(self, writer: LineWriter | None, *, as_json: bool = False) -> None:
        self._append = writer.append if writer is not None else None
        self._json = as_json
        self._clock = Clock()

    def write(
        self,
        remote: str,
        method: str,
        path: str,
        protocol: str,
        status: int,
        duration_ms: float,
    ) -> None:
        """Takes one request; never waits. Called from the event loop alone."""
        if self._append is not None:
            if self._json:
                facts = remote, method, path, protocol, status, duration_ms
                self._append(access_line(time.time(), *facts))
                return
            if not (path.isascii() and path.isprintable()):
                path = ascii(path)[1:-1]  # one line a request, and nothing that no file can hold
            request = f'/{remote} "{method} {path} {protocol}"'
            # int(x + 0.5) takes a quarter of the time of x:.0f, and this is on every request's way.
            self._append(f"{self._clock.now()} - {request} {status} {int(duration_ms + 0.5)}\n")


class WorkerLog:
    """Writes what workers print, a line each.

    Args:
        writers: Where to.
        as_json: Whether each line is a JSON object.
    """

    def __init__(self, *writers: LineWriter, as_json: bool = False) -> None:
        self._writers = writers
        self._json = as_json
        self._clock = Clock()

    def line(self, worker_name: str, stream: str, text: str) -> None:
        """Takes one line of a worker; never waits. Called from the event loop alone.

        Args:
            worker_name: Such as ``W-9000-model_1.0``.
            stream: ``stdout`` or ``stderr``.
            text: Without a newline.
        """
        if self._json:
            line = worker_line(time.time(), worker_name, stream, text)
        else:
            level = _STREAMS.get(stream, "INFO ")
            said = visible(text)
            line = f"{self._clock.now()} [{level}] {worker_name}-{stream} MODEL_LOG - {said}\n"
        for writer in self._writers:
            writer.append(line)


@dataclass(frozen=True, slots=True)
class Logs:
    """All logs of a running server.

    Args:
        access: Of requests.
        worker: Of workers.
        console: What the console shows.
        writers: What ``close`` closes.
        handler: The server's own log, at the root logger.
    """

    access: AccessLog
    worker: WorkerLog
    console: LineWriter
    writers: tuple[LineWriter, ...]
    files: tuple[RotatingFileHandler, ...]
    handler: logging.Handler

    def close(self) -> None:
        """Writes what is left, for a bounded time, and closes the files."""
        logging.getLogger().removeHandler(self.handler)
        written = [writer.close() for writer in self.writers]
        if all(written):
            for file in self.files:
                file.close()


def configure_logging(config: ServerConfig) -> Logs:
    """Opens the log files and sends the server's own log there and to the console.

    Raises:
        ConfigError: If the files cannot be written.
    """
    files: list[RotatingFileHandler] = []
    writers: list[LineWriter] = []

    def open_log(name: str, interval_s: float) -> LineWriter:
        file = _open(config.log_location / name)
        files.append(file)
        writers.append(LineWriter(lambda text: _write(file, text), name, interval_s))
        return writers[-1]

    server, model = open_log("ts_log.log", _INTERVAL_S), open_log("model_log.log", _INTERVAL_S)
    access = open_log("access_log.log", _ACCESS_INTERVAL_S) if config.access_log else None
    console = LineWriter(write_console, "console", _INTERVAL_S)
    as_json = config.log_format == "json"
    handler = _ServerHandler(server, console, as_json=as_json)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    return Logs(
        AccessLog(access, as_json=as_json),
        WorkerLog(model, console, as_json=as_json),
        console,
        (*writers, console),
        tuple(files),
        handler,
    )


def _open(path: Path) -> RotatingFileHandler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = RotatingFileHandler(
            path,
            maxBytes=MAX_BYTES,
            backupCount=KEPT_FILES,
            encoding="utf-8",
            errors="backslashreplace",
        )
    except OSError as error:
        hint = "LOG_LOCATION names another directory"
        raise ConfigError(str(path), f"cannot be written: {error.strerror}", hint) from None
    file.terminator = ""
    file.setFormatter(logging.Formatter("%(message)s"))
    return file


def _write(file: RotatingFileHandler, text: str) -> None:
    """Appends to the file, or to the next one if this one is full."""
    file.handle(logging.makeLogRecord({"msg": text, "args": None}))


class _ServerHandler(logging.Handler):
    """Formats as ``date [INFO ] thread logger - message``."""

    def __init__(self, *writers: LineWriter, as_json: bool = False) -> None:
        super().__init__(logging.INFO)
        self._writers = writers
        self._json = as_json
        self._clock = Clock()
        self._format = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Hands a record to the writers."""
        try:
            line = server_line(record, self._format) if self._json else self._text(record)
        except Exception:
            self.handleError(record)
            return
        for writer in self._writers:
            writer.append(line)

    def _text(self, record: logging.LogRecord) -> str:
        text = visible(self._format.format(record))
        level = _LEVELS.get(record.levelname, record.levelname)
        thread = record.threadName or str(threading.get_ident())
        date = self._clock.format(record.created)
        return f"{date} [{level:<5}] {thread} {record.name} - {text}\n"
