"""The short way of predictions and the way through aiohttp must be indistinguishable.

A fresh connection that begins with a prediction takes the short way; one that began with a ping
stays with aiohttp. The same bytes are sent over both.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import Running

FORM = "application/x-www-form-urlencoded"
PARTS = (
    b'--b\r\nContent-Disposition: form-data; name="data"; filename="f"\r\n'
    b"Content-Type: text/plain\r\n\r\nfrom a file\r\n--b--\r\n"
)

# path, headers, body
REQUESTS: list[tuple[str, str, bytes]] = [
    ("/predictions/echo", "", b""),
    ("/predictions/echo", "Content-Type: text/plain", b"text"),
    ("/predictions/echo", "content-type: text/plain; charset=utf-8", "grün".encode()),
    ("/predictions/echo", "Content-Type: application/json", b'{"a": [1, 2]}'),
    ("/predictions/echo", "Content-Type: application/json", b"{no json"),
    ("/predictions/echo", "Content-Type: application/octet-stream", bytes(range(256)) * 3000),
    ("/predictions/echo", f"Content-Type: {FORM}", b"data=a+b%21&other=1"),
    ("/predictions/echo", f"Content-Type: {FORM}", b"hello"),
    ("/predictions/echo", "Content-Type: multipart/form-data; boundary=b", PARTS),
    ("/predictions/echo", "Content-Type: multipart/form-data", PARTS),
    ("/predictions/echo/1.0", "Content-Type: text/plain", b"pinned"),
    ("/predictions/echo/1.0/more/path", "Content-Type: text/plain", b"pinned"),
    ("/predictions/echo/", "Content-Type: text/plain", b"slash"),
    ("/predictions/echo?a=b", "Content-Type: text/plain", b"query"),
    ("/predictions/e%63ho", "Content-Type: text/plain", b"encoded"),
    ("/predictions/echo/9.9", "", b"no such version"),
    ("/predictions/absent", "", b"no such model"),
    ("/predictions/", "", b"no name"),
    ("/predictions/..%2fecho", "", b"no name"),
    ("/explanations/echo", "Content-Type: text/plain", b"why"),
    ("/predictions/echo", "X-Request-Timeout: soon", b"x"),
    ("/predictions/echo", "Connection: close", b"last"),
    ("/predictions/echo", "Content-Encoding: gzip", b"not gzip"),
    ("/predictions/responding", "Content-Type: application/json", b'{"status": 201}'),
    (
        "/predictions/responding",
        "Content-Type: application/json",
        b'{"status": 418, "phrase": "short and stout", "body": "tea"}',
    ),
    ("/predictions/responding", "Content-Type: application/json", b'{"status": 204}'),
    ("/predictions/responding", "Content-Type: application/json", b'{"status": 99}'),
    (
        "/predictions/responding",
        "Content-Type: application/json",
        b'{"content_type": "image/png", "headers": {"X-Own": "1", "Pragma": "mine"}}',
    ),
    (
        "/predictions/responding",
        "Content-Type: application/json",
        b'{"headers": {"X-Bad": "a\\r\\nSet-Cookie: b"}}',
    ),
    ("/predictions/returning", "Content-Type: text/plain", b"bytes"),
    ("/predictions/returning", "Content-Type: text/plain", b"dict"),
    ("/predictions/returning", "Content-Type: text/plain", b"object"),
    ("/predictions/wrong", "Content-Type: text/plain", b""),
    ("/predictions/streaming", "Content-Type: text/plain", b"3"),
    ("/predictions/too_large", "", b"x" * 2_000_000),
]


def v2(more: str = "", shape: str = "2", data: str = '"data": [1, 2.5]', raw: bytes = b"") -> bytes:
    """A V2 request of one tensor, with more members of the request and what follows the JSON."""
    tensor = f'{{"name": "x", "datatype": "FP32", "shape": [{shape}], {data}}}'
    return f'{{"inputs": [{tensor}]{more}}}'.encode() + raw


def binary(more: str = "", count: int = 2) -> tuple[str, bytes]:
    """Headers and body of a V2 request whose tensor is in binary form."""
    size = f'"parameters": {{"binary_data_size": {4 * count}}}'
    head = v2(more, str(count), size)
    return f"Inference-Header-Content-Length: {len(head)}", head + bytes(range(4)) * count


RAW_ANSWER = ', "parameters": {"binary_data_output": true}'
ONE_RAW = ', "outputs": [{"name": "shapes"}, {"name": "x", "parameters": {"binary_data": true}}]'
PATH = "/v2/models/tensors/infer"
REQUESTS += [
    (PATH, "Content-Type: application/json", v2()),
    (PATH, "", v2(', "id": "mine"')),
    ("/v2/models/tensors/versions/1.0/infer", "", v2()),
    (PATH, *binary()),
    (PATH, *binary(RAW_ANSWER)),
    (PATH, *binary(ONE_RAW)),
    (PATH, *binary(RAW_ANSWER, 200_000)),
    (PATH, "Accept-Encoding: gzip", v2(shape="2000", data=f'"data": {[1.5] * 2000}')),
    (PATH, "", v2(', "outputs": [{"name": "absent"}]')),
    (PATH, "", v2(', "parameters": {"timeout": "soon"}')),
    (PATH, "X-Request-Timeout: never", v2()),
    (PATH, "", v2(shape="3")),
    (PATH, "", v2().replace(b'"x"', b'"break"')),
    (PATH, "", b"no json"),
    (PATH, "Inference-Header-Content-Length: 9999", v2()),
    (PATH, "Connection: close", v2()),
    ("/v2/models/absent/infer", "", v2()),
    ("/v2/models/streaming/infer", "", v2()),
    ("/v2/models/tensors/versions/7/infer", "", v2()),
    ("/v2/models/tensors/explain", "", v2()),
    ("/v2/models/base/infer", "", v2()),
    ("/v2/models/ten%73ors/infer", "", v2()),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(
        Path(tmp_path_factory.mktemp("served")),
        properties="max_request_size=1000000\ncors_allowed_origin=*",
    )
    one = "minWorkers: 1\nmaxWorkers: 1\n"
    server.pack("echo", "echo", one)
    server.pack("responding", "responding", one)
    server.pack("returning", "returning", one)
    server.pack("wrong", "wrong_length", one)
    server.pack("streaming", "streaming", one)
    server.pack("tensors", "tensors", one)
    try:
        yield server.start()
    finally:
        server.stop()


def head_of(path: str, headers: str, size: int) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: here", f"Content-Length: {size}"]
    return "\r\n".join([*lines, *filter(None, [headers]), "", ""]).encode()


def read_answer(sock: socket.socket) -> tuple[str, list[str], bytes]:
    """Status line, headers in lower case without what changes from answer to answer, and body."""
    with sock.makefile("rb") as file:
        status = file.readline().decode().strip()
        lines = []
        while line := file.readline().strip():
            lines.append(line.decode())
        fields = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        if fields.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(file.readline(), 16):
                body += b"[" + file.read(size) + b"]"
                file.readline()
            file.readline()
        else:
            body = file.read(int(fields.get("content-length", 0)))
    for name in ("date", "x-request-id"):
        assert fields.pop(name)
    pattern = rb"[0-9a-f]{8}-[0-9a-f-]{27}"
    return status, sorted(f"{k}: {v}" for k, v in fields.items()), re.sub(pattern, b"ID", body)


def connect(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.ports["inference"]), timeout=30)


@pytest.mark.parametrize(("path", "headers", "body"), REQUESTS)
def test_same_answer(served: Running, path: str, headers: str, body: bytes) -> None:
    request = head_of(path, headers, len(body)) + body
    with connect(served) as short:
        short.sendall(request)
        by_the_short_way = read_answer(short)
    with connect(served) as long:
        long.sendall(b"GET /ping HTTP/1.1\r\nHost: here\r\n\r\n")
        assert read_answer(long)[0] == "HTTP/1.1 200 OK"
        long.sendall(request)
        by_the_long_way = read_answer(long)

    assert by_the_short_way == by_the_long_way


def test_any_cutting_of_the_bytes_gives_the_same_answers(served: Running) -> None:
    body = b"0123456789" * 5
    request = head_of("/predictions/echo", "Content-Type: text/plain", len(body)) + body
    expected = None
    for step in (1, 7, 100, len(request) - 1, len(request) + 9):
        stream = request * 3
        with connect(served) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(0, len(stream), step):
                sock.sendall(stream[at : at + step])
            answer = read_answer(sock)
        expected = expected or answer
        assert answer == expected
        assert answer[2] == body


def test_requests_sent_ahead_are_answered_in_order(served: Running) -> None:
    bodies = [b"%d" % i for i in range(50)]
    stream = b"".join(
        head_of("/predictions/echo", "Content-Type: text/plain", len(b)) + b for b in bodies
    )
    with connect(served) as sock:
        sock.sendall(stream + head_of("/predictions/echo", "Connection: close", 4) + b"last")
        received = b"".join(iter(lambda: sock.recv(1 << 16), b""))

    answers = re.findall(rb"\r\n\r\n(\d+|last)", received)
    assert answers == [*bodies, b"last"]


def test_a_connection_may_change_from_predictions_to_anything(served: Running) -> None:
    with connect(served) as sock:
        for _ in range(2):
            sock.sendall(head_of("/predictions/echo", "Content-Type: text/plain", 2) + b"hi")
            assert read_answer(sock)[2] == b"hi"
            sock.sendall(b"GET /ping HTTP/1.1\r\nHost: here\r\n\r\n")
            assert b"Healthy" in read_answer(sock)[2]


@pytest.mark.parametrize(
    "garbage",
    [
        b"POST /predictions/echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /predictions/echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /predictions/echo HTTP/1.1\r\nContent-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"POST /predictions/echo HTTP/1.1\r\nA B: c\r\n\r\n",
        b"POST /predictions/echo HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_garbage_is_refused_and_harms_nobody(served: Running, garbage: bytes) -> None:
    with connect(served) as sock:
        sock.sendall(garbage + b"\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: sock.recv(1 << 16), b""))

    assert received == b"" or received.split()[1].startswith(b"4")
    assert served.predict("echo", "still here").text == "still here"
