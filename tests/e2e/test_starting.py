"""What a server says while it loads the models that it is started with."""

from __future__ import annotations

from tests.e2e.running import Running


def test_a_model_that_may_still_come_is_not_called_missing(server: Running) -> None:
    server.pack("hangs", "hanging_import", "minWorkers: 1\nmaxWorkers: 1\nstartupTimeout: 4\n")
    server.launch()
    server.until(lambda: listens(server), "it does not listen")

    ready, early = server.ask("GET", "/health/ready"), server.predict("other", "x")
    server.wait_for("Model server started.")
    late = server.predict("other", "x")

    assert (503, True) == (ready.status, ready.json["loading"])
    assert (503, "1") == (early.status, early.headers["retry-after"])
    assert "still loading" in early.message
    assert (404, "Model not found: other") == (late.status, late.message)


def listens(server: Running) -> bool:
    try:
        return server.ask("GET", "/health/live").status == 200
    except OSError:
        return False
