from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from marserve.archiver.errors import ConfigError
from marserve.frontend import logs as module
from marserve.frontend.config import load_config
from marserve.frontend.logs import Clock, Logs, configure_logging

DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}"


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    root = logging.getLogger()
    level = root.level
    config = load_config({"model_store": str(tmp_path)}, {}, tmp_path)
    logs = configure_logging(config)
    yield logs
    logs.close()
    root.setLevel(level)


def read(logs: Logs, path: Path) -> str:
    logs.close()
    return path.read_text()


def test_a_request(logs: Logs, tmp_path: Path) -> None:
    logs.access.write("127.0.0.1", "GET", "/ping?a=b", "HTTP/1.1", 200, 1.6)

    line = read(logs, tmp_path / "logs" / "access_log.log")
    assert re.fullmatch(DATE + r' - /127\.0\.0\.1 "GET /ping\?a=b HTTP/1\.1" 200 2\n', line)


def test_what_workers_print(logs: Logs, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logs.worker.line("W-9000-m_1.0", "stdout", "hello")
    logs.worker.line("W-9000-m_1.0", "stderr", "oh")

    first, second = read(logs, tmp_path / "logs" / "model_log.log").splitlines()
    assert re.fullmatch(DATE + r" \[INFO \] W-9000-m_1\.0-stdout MODEL_LOG - hello", first)
    assert re.fullmatch(DATE + r" \[WARN \] W-9000-m_1\.0-stderr MODEL_LOG - oh", second)
    assert f"{first}\n{second}\n" == capfd.readouterr().out


def test_what_the_server_says(
    logs: Logs, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("marserve.frontend.x")
    log.debug("unseen")
    log.warning("careful: %s", 1)
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")

    text = read(logs, tmp_path / "logs" / "ts_log.log")
    first, second, *rest = text.splitlines()
    assert re.fullmatch(DATE + r" \[WARN \] MainThread marserve.frontend.x - careful: 1", first)
    assert re.fullmatch(DATE + r" \[ERROR\] MainThread marserve.frontend.x - failed", second)
    assert "Traceback (most recent call last):" == rest[0]
    assert "ValueError: why" == rest[-1]
    assert text == capfd.readouterr().out


def test_files_are_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    config = load_config({"model_store": str(tmp_path)}, {}, tmp_path)
    logs = configure_logging(config)
    model = next(writer for writer in logs.writers if writer.name == "model_log.log")
    for number in range(100):
        logs.worker.line("W", "stdout", f"{number:0200}")
        model.flush(30)
    logs.close()
    files = sorted(path.name for path in (tmp_path / "logs").glob("model_log*"))

    assert ["model_log.log", *(f"model_log.log.{number}" for number in range(1, 6))] == files
    assert (tmp_path / "logs" / "model_log.log").read_text().endswith("99\n")
    assert all(path.stat().st_size <= 1000 for path in (tmp_path / "logs").glob("model_log*"))


def test_no_access_log(tmp_path: Path) -> None:
    (tmp_path / "config.properties").write_text("access_log=false")
    config = load_config({"model_store": str(tmp_path)}, {"LOG_LOCATION": "else"}, tmp_path)
    logs = configure_logging(config)
    logs.access.write("127.0.0.1", "GET", "/", "HTTP/1.1", 200, 0)
    logs.close()

    assert ["model_log.log", "ts_log.log"] == sorted(p.name for p in (tmp_path / "else").iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = load_config({"model_store": str(tmp_path)}, {"LOG_LOCATION": "file/x"}, tmp_path)

    with pytest.raises(ConfigError, match=r"ts_log\.log: cannot be written"):
        configure_logging(config)


def test_the_clock() -> None:
    clock = Clock()
    for moment in (1.0, 1.0019, 1.9996, 2.0, 1.5, time.time()):
        date = datetime.fromtimestamp(moment)
        expected = f"{date:%Y-%m-%dT%H:%M:%S},{int(moment * 1000) % 1000:03}"

        assert expected == clock.format(moment)


@pytest.mark.parametrize("path", ["/a\udcff", "/a\x1b[2J", "/a\r\nforged", "/\x9b31m", "/ü"])
def test_a_path_is_one_plain_line(logs: Logs, tmp_path: Path, path: str) -> None:
    logs.access.write("127.0.0.1", "GET", path, "HTTP/1.1", 404, 1.0)
    logs.access.write("127.0.0.1", "GET", "/next", "HTTP/1.1", 200, 1.0)

    first, second = read(logs, tmp_path / "logs" / "access_log.log").splitlines()
    assert first.isascii()
    assert first.isprintable()
    assert "/next" in second


def test_terminals_are_left_alone(logs: Logs, capfd: pytest.CaptureFixture[str]) -> None:
    logs.worker.line("W-9000-m_1.0", "stdout", "red \x1b[31m \x9b2J\ttab")
    logs.worker.line("W-9000-m_1.0", "stderr", "no text: \udcff")
    logging.getLogger("marserve.frontend.x").warning("bad %s", "\x1b]0;title\x07")
    logs.close()

    shown = capfd.readouterr().out
    assert "red \\x1b[31m \\x9b2J\ttab\n" in shown
    assert "bad \\x1b]0;title\\x07" in shown
    assert "no text: " in shown
