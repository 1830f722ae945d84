"""Tracebacks in error answers: where the server's administrator asked for them, nowhere else."""

from __future__ import annotations

import pytest
from tests.e2e.grpc_clients import Clients, failure
from tests.e2e.running import Running


@pytest.mark.parametrize("wish", ["value", "deep"])
def test_traceback_where_it_is_asked_for(server: Running, wish: str) -> None:
    server.properties = "debug_errors=true\n"
    server.pack("raising", "raising")
    server.start()
    answer = server.predict("raising", wish).json
    with Clients(server) as clients:
        _, details = failure(lambda: clients.predict("raising", wish))

    assert set(answer) == {"code", "type", "message", "traceback"}
    for text in (answer["traceback"], details):
        assert "in answer\n" in text
        assert text.endswith(answer["message"].removeprefix("Prediction failed: ") + "\n")
    assert details.startswith(answer["message"] + "\n")
    assert len(details) < 4000


def test_none_by_default(server: Running) -> None:
    server.pack("raising", "raising")
    server.start()
    answers = [server.predict("raising", wish).json for wish in ("value", "memory", "deep")]
    with Clients(server) as clients:
        _, details = failure(lambda: clients.predict("raising", "value"))

    assert all(set(answer) == {"code", "type", "message"} for answer in answers)
    assert details == answers[0]["message"]
