"""Any bytes at all sent to a running server, and what it shows to the network."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.e2e.running import Running

JSON = {"Content-Type": "application/json"}
KEYS = {
    f"MARSERVE_{name}_KEY": f"key-of-{name.lower()}" for name in ("INFERENCE", "MANAGEMENT", "API")
}
TOKENS = [
    *[b"GET ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"HEAD ", b"PRI * HTTP/2.0\r\n\r\n"],
    *[b"/predictions/echo", b"/ping", b"/models", b"/", b"/models/echo/1.0/set-default", b"*"],
    *[b"/metrics", b"?url=", b"?name[]=", b"&a=%0d%0a", b"%00", b"%2e%2e%2f", b"\\", b"//", b"#"],
    *[b" HTTP/1.1", b" HTTP/1.0", b" HTTP/9.9", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\0", b"\xff"],
    *[b"Host: a", b"Content-Length: 3", b"Content-Length: -1", b"Content-Length: 3, 3"],
    *[b"Transfer-Encoding: chunked", b"Transfer-Encoding: x", b"transfer-encoding : chunked"],
    *[b"3\r\nabc\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"0\r\nX: y\r\n\r\n", b"abc"],
    *[b"Content-Type: multipart/form-data; boundary=b", b"--b\r\n", b"--b--\r\n"],
    *[b"Content-Type: application/json", b"{", b"[" * 5000, b" folded", b"\tfolded"],
    *[b"Connection: close", b"Connection: upgrade", b"Upgrade: websocket", b"Expect: 100-continue"],
    *[b"Content-Encoding: deflate", b"Authorization: Bearer x", b"X-Request-Timeout: nan"],
]
REQUESTS = st.lists(st.sampled_from(TOKENS) | st.binary(max_size=20), max_size=25).map(b"".join)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(Path(tmp_path_factory.mktemp("served")), environment=KEYS)
    server.pack("echo", "echo", "minWorkers: 1\nmaxWorkers: 1\n")
    server.pack("environment", "environment", "minWorkers: 1\nmaxWorkers: 1\n")
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.mark.parametrize("kind", ["inference", "management", "metrics"])
def test_any_bytes_are_survived(served: Running, kind: str) -> None:
    @settings(
        max_examples=100,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        database=None,
    )
    @given(REQUESTS, st.integers(1, 200))
    def send(data: bytes, step: int) -> None:
        with socket.create_connection(("127.0.0.1", served.ports[kind]), timeout=10) as sock:
            received = b""
            try:
                for at in range(0, len(data), max(step, len(data) // 20)):
                    sock.sendall(data[at : at + max(step, len(data) // 20)])
                sock.shutdown(socket.SHUT_WR)
                while piece := sock.recv(1 << 16):
                    received += piece
            except OSError:  # it has closed the connection already
                pass
        statuses = re.findall(rb"HTTP/1\.[01] (\d{3})", received)
        assert not [s for s in statuses if s[:1] == b"5"], received
        assert b"Traceback" not in received

    send()
    assert served.predict("echo", "still here").text == "still here"
    assert "Traceback" not in served.console


@pytest.mark.parametrize("kind", ["inference", "management"])
@pytest.mark.parametrize(
    "data",
    [
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n folded\r\n\r\nabc",
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nX: a\r\n folded\r\n\r\n",
        b"POST /predictions/echo HTTP/1.1\nHost: a\n\nPOST /evil HTTP/1.1\r\n\r\n",
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Length: 3\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc",
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3,3\r\n\r\nabc",
    ],
)
def test_two_readings_of_one_request_are_none(served: Running, kind: str, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.ports[kind]), timeout=10) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: sock.recv(1 << 16), b""))

    assert received.count(b"HTTP/1.1 ") <= 1
    assert b" 200 " not in received.split(b"\r\n")[0]


def test_only_the_loopback_interface_is_listened_on(served: Running) -> None:
    assert served.process is not None
    server = psutil.Process(served.process.pid)
    family = [server, *server.children(recursive=True)]
    listening = [
        connection.laddr
        for process in family
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]

    # gRPC listens on a socket of both families, where addresses of IPv4 are mapped into IPv6.
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert {address.port for address in listening} == {
        *served.ports.values(),
        *served.grpc_ports.values(),
    }


def test_workers_do_not_know_the_keys_of_the_server(served: Running) -> None:
    assert served.predict("environment", "MARSERVE_MANAGEMENT_KEY").text == "not set"
    assert served.predict("environment", "PATH").text != "not set"


@pytest.mark.parametrize(
    "body",
    [
        '{"url": "' + "a" * 300 + '.mar"}',
        '{"url": "\\ud800.mar"}',
        '{"url": "a\\u0000.mar"}',
        '{"url": ["a.mar"]}',
        '{"url": {"a": 1}}',
        "{'url': &a ['x', 'x'], b: &b [*a, *a], c: &c [*b, *b], d: [*c, *c]}",
        "{'a': " + "[" * 100_000,
        "{'a': '" + "b: [c, d]" * 200_000,
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_register_bodies_that_are_none(served: Running, body: str) -> None:
    answer = served.manage("POST", "/models", body=body, headers=JSON, timeout_s=5)

    assert answer.status in (400, 404)


def test_body_of_a_stranger_is_not_waited_for(server: Running) -> None:
    server.arguments, server.models = (), None
    server.start()
    with socket.create_connection(("127.0.0.1", server.ports["inference"]), timeout=10) as sock:
        sock.sendall(
            b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\nabc"
        )
        answer = sock.recv(1 << 16)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"InvalidKeyException" in answer


@pytest.mark.parametrize("path", ["/models/a%0Ab", "/%0a", "/predictions/echo%0d%0a", "/%", "/%zz"])
def test_every_path_is_answered_by_us(served: Running, path: str) -> None:
    for kind in ("inference", "management", "metrics"):
        answer = served.ask("GET", path, kind=kind)
        assert answer.status == 404
        assert answer.json["code"] == 404
        assert "x-request-id" in answer.headers
