"""The metrics as lines: ts_metrics.log and model_metrics.log, written in the background."""

from __future__ import annotations

import logging
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

from marserve.frontend.instruments import Family
from marserve.frontend.line_writer import LineWriter
from marserve.frontend.logs import Clock
from marserve.worker import wire

INTERVAL_S = 0.5
MAX_BYTES, KEPT_FILES = 100 << 20, 5

# How units are written out where a handler says them.
UNITS = {
    "ms": "Milliseconds",
    "s": "Seconds",
    "percent": "Percent",
    "count": "Count",
    "MB": "Megabytes",
    "GB": "Gigabytes",
    "kB": "Kilobytes",
    "B": "Bytes",
    "": "unit",
}


class MetricsLog:
    """Writes lines such as ``CPUUtilization.Percent:0.0|#Level:Host|#hostname:h,timestamp:1``.

    Args:
        directory: Where the two files are; made if it is not there.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._server = _LineFile(directory / "ts_metrics.log")
        self._model = _LineFile(directory / "model_metrics.log")

    def server(self, family: Family, values: tuple[str, ...], value: float) -> None:
        """Takes a change of one of the server's metrics."""
        known = dict(zip(family.labels, values, strict=True))
        host = known.pop("Hostname", "") or known.pop("hostname", "")
        dimensions = ",".join(f"{label}:{text}" for label, text in known.items())
        head = f"{family.name}.{family.unit}:{value}|#{dimensions}"
        self._server.write(f"{head}|#hostname:{host},timestamp:{int(time.time())}")

    def model(self, sample: wire.Sample, host: str, unit: str) -> None:
        """Takes a value that a handler reported."""
        dimensions = ",".join(f"{name}:{value}" for name, value in sample.dimensions)
        ids = sample.request_ids or "null"
        head = f"{sample.name}.{unit}:{sample.value}|#{dimensions}"
        self._model.write(f"{head}|#hostname:{host},requestID:{ids},timestamp:{int(time.time())}")

    def close(self) -> None:
        """Writes what is left."""
        self._server.close()
        self._model.close()


class _LineFile:
    """A log file that a thread of its own writes."""

    def __init__(self, path: Path) -> None:
        self._file = RotatingFileHandler(
            path, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, encoding="utf-8"
        )
        self._file.terminator = ""
        self._clock = Clock()
        self._writer = LineWriter(self._emit, path.name, INTERVAL_S)

    def write(self, text: str) -> None:
        self._writer.append(f"{self._clock.now()} - {text}\n")

    def close(self) -> None:
        if self._writer.close():
            self._file.close()

    def _emit(self, text: str) -> None:
        self._file.handle(logging.makeLogRecord({"msg": text, "args": None}))
