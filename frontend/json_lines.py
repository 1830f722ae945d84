"""Logs as JSON, an object a line, for what collects logs; the same facts as in the text formats."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_LEVELS = {"stdout": "INFO", "stderr": "WARN"}


def access_line(
    epoch_s: float,
    remote: str,
    method: str,
    path: str,
    protocol: str,
    status: int,
    duration_ms: float,
) -> str:
    """Returns the line of a request."""
    return _line(
        epoch_s,
        log="access",
        remote=remote,
        method=method,
        path=path,
        protocol=protocol,
        status=status,
        duration_ms=round(duration_ms, 3),
    )


def worker_line(epoch_s: float, worker: str, stream: str, text: str) -> str:
    """Returns the line of what a worker printed."""
    level = _LEVELS.get(stream, "INFO")
    return _line(epoch_s, log="model", level=level, worker=worker, stream=stream, message=text)


def server_line(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    """Returns the line of a record of the server's own log."""
    more: dict[str, Any] = {}
    if record.exc_info:
        more["exception"] = formatter.formatException(record.exc_info)
    return _line(
        record.created,
        log="server",
        level={"WARNING": "WARN"}.get(record.levelname, record.levelname),
        logger=record.name,
        message=record.getMessage(),
        **more,
    )


def _line(epoch_s: float, **values: Any) -> str:
    time = datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
    document = {"time": time.replace("+00:00", "Z"), **values}
    try:
        return _encode(document).decode() + "\n"
    except UnicodeEncodeError:  # lone surrogates, of bytes that no encoding has
        safe = {
            key: value.encode("utf-8", "backslashreplace").decode()
            if isinstance(value, str)
            else value
            for key, value in document.items()
        }
        return _encode(safe).decode() + "\n"
