"""Who may call, over what, and how gRPC starts and stops with its server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from google.protobuf.empty_pb2 import Empty
from tests.e2e.grpc_clients import LIMIT_S, Clients, Held, failure, question, untyped
from tests.e2e.running import BIN, Running

from marserve.frontend.grpc import management_pb2 as pb

Code = grpc.StatusCode
REFUSED = "Token Authorization failed. Token either incorrect, expired, or not provided correctly"
WORKER = "minWorkers: 1\nmaxWorkers: 1\n"


def bearer(key: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {key}")]


def test_keys(server: Running) -> None:
    server.arguments = ("--enable-model-api",)
    server.pack("echo", "echo", WORKER)
    server.start()
    file = json.loads((server.root / "key_file.json").read_text())
    keys = {kind: file[kind]["key"] for kind in ("inference", "management", "API")}
    with Clients(server) as ask:

        def ping(metadata: Any = None) -> Any:
            return ask.inference.Ping(Empty(), metadata=metadata, timeout=LIMIT_S)

        def listed(metadata: Any = None) -> Any:
            message = pb.ListModelsRequest()
            return ask.management.ListModels(message, metadata=metadata, timeout=LIMIT_S)

        def converse(metadata: Any = None) -> Any:
            asked = iter([question("echo", "x")])
            call = ask.inference.StreamPredictions2(asked, metadata=metadata, timeout=LIMIT_S)
            return list(call)

        unknown = untyped(ask.channels["inference"], "/a.B/C")
        for call in (ping, listed, converse, lambda m=None: unknown(b"", metadata=m)):
            for metadata in (None, bearer("wrong"), [("authorization", keys["inference"])]):
                refused = failure(partial(call, metadata))
                assert Code.PERMISSION_DENIED == refused[0]
                assert refused[1].startswith(REFUSED)
        assert (Code.PERMISSION_DENIED, REFUSED) == failure(
            lambda: listed(bearer(keys["inference"]))
        )
        assert (Code.PERMISSION_DENIED, REFUSED) == failure(lambda: ping(bearer(keys["API"])))
        allowed = failure(lambda: unknown(b"", metadata=bearer(keys["inference"])))
        assert Code.UNIMPLEMENTED == allowed[0]
        big = bytes(6_000_000)  # refused before it is read
        assert Code.PERMISSION_DENIED == failure(lambda: ask.predict("echo", big))[0]
        assert b"x" == ask.predict("echo", "x", metadata=bearer(keys["inference"]))
        assert b"x" == converse(bearer(keys["inference"]))[0].prediction
        assert "echo" in listed(bearer(keys["management"])).msg


def test_a_handler_sees_metadata_as_headers(server: Running) -> None:
    server.pack("headers", "headers", WORKER)
    with Clients(server.start()) as ask:
        metadata = [("x-trace", "t1"), ("x-bytes-bin", b"\x00")]
        seen = json.loads(ask.predict("headers", "", metadata=metadata, sequence_id="s"))

    assert "t1" == seen["x-trace"]
    assert "s" == seen["ts_request_sequence_id"]
    assert "x-bytes-bin" not in seen


def test_tls(server: Running) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    command += " -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=server.root, check=True, capture_output=True)
    files = f"certificate_file={server.root}/cert.pem\nprivate_key_file={server.root}/key.pem\n"
    server.properties = f"enable_grpc_ssl=true\n{files}"
    server.pack("echo", "echo", WORKER)
    server.start()
    with Clients(server, (server.root / "cert.pem").read_bytes()) as ask:
        assert b"private" == ask.predict("echo", "private")
        assert '"models"' in ask.management.ListModels(pb.ListModelsRequest(), timeout=LIMIT_S).msg
    with Clients(server) as ask:
        assert Code.UNAVAILABLE == failure(lambda: ask.predict("echo", "open"))[0]


def test_it_listens_where_it_should_and_nowhere_else(server: Running) -> None:
    server.start()
    assert server.process is not None
    connections = psutil.Process(server.process.pid).net_connections("tcp")
    addresses = [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]
    listening = {a.port: a.ip.removeprefix("::ffff:") for a in addresses}
    ports = [*server.ports.values(), *server.grpc_ports.values()]

    assert dict.fromkeys(ports, "127.0.0.1") == listening


@pytest.mark.parametrize("kind", ["inference", "management"])
def test_a_port_in_use_ends_the_start(server: Running, kind: str) -> None:
    taken = socket.create_server(("127.0.0.1", server.grpc_ports[kind]))
    with taken, pytest.raises(AssertionError, match="the server ended"):
        server.start()

    assert f"grpc_{kind}_port: grpc://127.0.0.1:{server.grpc_ports[kind]} is in use" in (
        server.console
    )
    assert "enable_grpc=false" in server.console


def test_it_can_be_switched_off(server: Running) -> None:
    server.properties = "enable_grpc=false"
    server.start()
    assert server.process is not None
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text()
    with socket.socket() as probe:
        refused = probe.connect_ex(("127.0.0.1", server.grpc_ports["inference"]))

    assert refused
    assert "google/_upb" not in loaded


def test_http_does_not_import_it() -> None:
    code = "import sys, marserve.frontend.__main__; print([m for m in sys.modules if 'grpc' in m])"
    python = BIN / "python"
    done = subprocess.run([python, "-Ic", code], check=True, capture_output=True, text=True)

    assert "[]\n" == done.stdout


# -- the stop --------------------------------------------------------------------------------------


def busy(ask: Clients, call: Any) -> Any:
    """Starts a call; returns once its handler runs."""
    ask.server.until(lambda: "batch of 1 begins" in ask.server.console, "the worker is not busy")
    return call


def stopping(server: Running) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("stopping: accepted requests have 30 s")


def test_calls_that_run_are_answered_before_the_server_stops(server: Running) -> None:
    server.pack("slow", "slow", WORKER)
    with Clients(server.start()) as ask:
        one = ask.inference.Predictions.future(question("slow", "2"), timeout=LIMIT_S)
        busy(ask, one)
        queued = ask.inference.StreamPredictions(question("slow", "0"), timeout=LIMIT_S)
        held = Held()
        conversation = ask.inference.StreamPredictions2(held, timeout=LIMIT_S)
        held.send(question("slow", "0.1"))
        server.until(
            lambda: server.describe("slow")["jobQueueStatus"]["pendingRequests"] == 2,
            "not both wait",
        )
        stopping(server)
        refused = failure(lambda: ask.predict("slow", "0"))
        answers = [one.result().prediction, next(queued).prediction, next(conversation).prediction]
        ended = failure(lambda: next(conversation))
        held.send(None)
        code = server.stop(0)

    assert [b"slept 2", b"slept 0", b"slept 0.1"] == answers
    assert Code.UNAVAILABLE == refused[0]
    assert (Code.UNAVAILABLE, "The server is being stopped.") == ended
    assert 0 == code


def test_an_idle_conversation_does_not_hold_the_stop_up(server: Running) -> None:
    server.pack("echo", "echo", WORKER)
    with Clients(server.start()) as ask:
        held = Held()
        conversation = ask.inference.StreamPredictions2(held, timeout=LIMIT_S)
        held.send(question("echo", "x"))
        assert b"x" == next(conversation).prediction
        stopping(server)
        ended = failure(lambda: next(conversation))
        held.send(None)

    assert (Code.UNAVAILABLE, "The server is being stopped.") == ended
    assert 0 == server.stop(0)
