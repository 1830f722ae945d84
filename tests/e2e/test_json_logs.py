"""Logs with log_format=json: every line of every log is an object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.running import Running, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    yield from running(tmp_path, properties="log_format=json\n")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_line_of_every_log_is_an_object(server: Running) -> None:
    server.pack("a", "talking")
    server.pack("broken", "broken_load")
    server.start()
    assert 200 == server.predict("a", 'a "quoted" word').status
    assert 404 == server.ask("GET", "/predictions/no%20%22model%22").status
    assert 0 == server.stop()
    logs = {path.name: lines(path) for path in (server.root / "logs").glob("*_log.log")}
    access = [entry for entry in logs["access_log.log"] if entry["path"].startswith("/pred")]

    assert {"access_log.log", "model_log.log", "ts_log.log"} == logs.keys()
    assert [("POST", 200), ("GET", 404)] == [(e["method"], e["status"]) for e in access]
    assert "/predictions/no%20%22model%22" == access[1]["path"]
    assert all(entry["duration_ms"] > 0 for entry in access)
    keys = {"time", "log", "level", "worker", "stream", "message"}
    assert {frozenset(keys)} == {frozenset(entry) for entry in logs["model_log.log"]}
    said = {(e["stream"], e["level"], e["message"]) for e in logs["model_log.log"]}
    text = 'a "quoted" word'
    assert {("stdout", "INFO", text), ("stderr", "WARN", text)} <= said
    assert any("Traceback" in entry["message"] for entry in logs["ts_log.log"])
    started = [e for e in logs["ts_log.log"] if e["message"] == "Model server started."]
    assert ["INFO"] == [entry["level"] for entry in started]
    for entries in logs.values():
        assert all(entry["time"].endswith("Z") for entry in entries)


def test_the_console_shows_objects_too(server: Running) -> None:
    server.pack("a", "echo")
    server.start()
    assert 0 == server.stop()
    shown = lines(server.root / "console.txt")

    assert "Model server started." in [entry["message"] for entry in shown]
