"""One table of rules for keys: every route and every method, known or not, with every key."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.e2e.grpc_clients import Clients
from tests.e2e.running import Running, running

from marserve.frontend.api import inference, management, metrics, v1, v2, workflows
from marserve.frontend.grpc import inference_pb2, management_pb2, open_inference_pb2

KEYS = {"inference": "inference-key", "management": "management-key", "API": "renewal-key"}
ROUTES = {
    "inference": [*inference.routes(), *v1.routes(), *v2.routes(), *workflows.inference_routes()],
    "management": [*management.routes(True), *workflows.management_routes(True)],
    "metrics": metrics.routes(),
}
OPEN = {
    "/health/live",
    "/health/ready",
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/metrics/{rest*}",
    "/token",  # which asks for the API key itself
}
PROBES = ("ServerLive", "ServerReady", "ServerMetadata")
ADMINISTRATION = ("RepositoryModelLoad", "RepositoryModelUnload")
REFUSED = "Token Authorization failed"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    environment = {f"MARSERVE_{kind.upper()}_KEY": key for kind, key in KEYS.items()}
    for server in running(
        tmp_path_factory.mktemp("locked"),
        arguments=("--enable-model-api",),
        environment=environment,
    ):
        server.pack("headers", "headers")
        server.start()
        yield server


class Caller:
    """Asks on one connection a surface, and tells whether the key was refused."""

    def __init__(self, server: Running) -> None:
        self.connections = {
            kind: http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            for kind, port in server.ports.items()
        }

    def refused(self, surface: str, method: str, path: str, key: str | None) -> bool:
        connection = self.connections[surface]
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        connection.request(method, path, b"{}" if method in ("POST", "PUT") else b"", headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status != 500, f"{method} {path}: {body!r}"
        if method == "HEAD":
            return answer.status == 400
        return answer.status == 400 and REFUSED in body.decode()

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


@pytest.fixture
def caller(locked: Running) -> Iterator[Caller]:
    caller = Caller(locked)
    yield caller
    caller.close()


def path_of(pattern: str) -> str:
    return re.sub(r"\{[^}]*\}", "absent", pattern)


@pytest.mark.parametrize("surface", ROUTES)
def test_every_route_asks_for_the_key_of_its_kind_and_for_no_other(
    caller: Caller, surface: str
) -> None:
    wrong = []
    for route in ROUTES[surface]:
        for method in sorted(route.methods or {"GET", "POST"}):
            path = path_of(route.pattern)
            keys = [None, "wrong", *KEYS.values()]
            refused = [key for key in keys if caller.refused(surface, method, path, key)]
            right = None if route.token is None else KEYS[route.token]
            expected = [] if right is None else [key for key in keys if key != right]
            if refused != expected or (right is None) != (route.pattern in OPEN):
                wrong.append((method, path, refused))

    assert [] == wrong


@pytest.mark.parametrize("surface", ["inference", "management"])
def test_what_exists_is_not_told_to_strangers(caller: Caller, surface: str) -> None:
    paths = ["/no/such/path", "/models/absent/x/y/z", "/%2e%2e/etc", "/v2/models", "/favicon.ico"]
    paths += [path_of(route.pattern) for route in ROUTES[surface] if route.token]
    methods = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE")
    for path in paths:
        for method in methods:
            assert caller.refused(surface, method, path, None), f"{method} {path}"
            assert caller.refused(surface, method, path, "wrong"), f"{method} {path}"


def methods_of(module: Any) -> list[str]:
    services = module.DESCRIPTOR.services_by_name.values()
    return [f"/{each.full_name}/{method.name}" for each in services for method in each.methods]


def denied(channel: grpc.Channel, path: str, key: str | None) -> bool:
    """Whether a call without a message is refused for its key."""
    metadata = () if key is None else (("authorization", f"Bearer {key}"),)
    method: Any = channel.stream_stream(path)  # takes and gives bytes
    call = method(iter([b""]), metadata=metadata, timeout=30)
    try:
        list(call)
    except grpc.RpcError as error:
        ended: Any = error
        return bool(
            ended.code() == grpc.StatusCode.PERMISSION_DENIED and REFUSED in ended.details()
        )
    return False


@pytest.mark.parametrize(
    ("surface", "module"),
    [
        ("inference", inference_pb2),
        ("management", management_pb2),
        ("inference", open_inference_pb2),
    ],
    ids=["inference", "management", "open"],
)
def test_every_method_of_grpc_asks_for_the_same_keys(
    locked: Running, surface: str, module: Any
) -> None:
    methods = methods_of(module)
    assert methods
    with Clients(locked) as clients:
        channel = clients.channels[surface]
        for path in [*methods, "/no.such.Service/Method", "/no/path/at/all"]:
            name = path.rpartition("/")[2]
            if name in PROBES:
                assert not denied(channel, path, None), path
                continue
            right = KEYS["management" if name in ADMINISTRATION else surface]
            for key in (None, "wrong", *KEYS.values()):
                assert denied(channel, path, key) == (key != right), f"{path} with {key}"


def test_no_handler_sees_a_key(locked: Running) -> None:
    key = f"Bearer {KEYS['inference']}"
    for spelt in ("Authorization", "authorization", "AUTHORIZATION"):
        for method, path in (
            ("POST", "/predictions/headers"),
            ("GET", "/predictions/headers"),
            ("POST", "/v1/models/headers:predict"),
            ("POST", "/invocations?model_name=headers"),
        ):
            answer = locked.ask(method, path, b"x", {spelt: key, "X-Own": "1"})
            assert answer.status == 200, answer.text
            assert "X-Own" in answer.json
            assert KEYS["inference"] not in answer.text
    with Clients(locked) as clients:
        own = [("authorization", key), ("x-own", "1")]
        seen = json.loads(clients.predict("headers", "x", metadata=own))

    assert seen["x-own"] == "1"
    assert "authorization" not in seen


def test_an_expired_key_opens_nothing_until_it_is_renewed(tmp_path: Path) -> None:
    properties = "token_expiration_min=0.05\n"  # 3 s
    for server in running(tmp_path, arguments=(), properties=properties):
        server.pack("headers", "headers")
        server.start()
        file = tmp_path / "key_file.json"

        def keys(file: Path = file) -> dict[str, str]:
            return {kind: entry["key"] for kind, entry in json.loads(file.read_text()).items()}

        def refused(key: str, server: Running = server) -> tuple[bool, bool]:
            headers = {"Authorization": f"Bearer {key}"}
            answer = server.ask("POST", "/predictions/headers", b"x", headers)
            with Clients(server) as clients:
                channel = clients.channels["inference"]
                over_grpc = denied(channel, methods_of(inference_pb2)[0], key)
            return REFUSED in answer.text, over_grpc

        old = keys()["inference"]
        server.until(lambda old=old: refused(old) == (True, True), "the key does not expire")
        for _ in range(20):  # a new one lives for as short a time
            renewal = {"Authorization": f"Bearer {keys()['API']}"}
            assert server.manage("GET", "/token?type=inference", headers=renewal).status == 200
            if refused(keys()["inference"]) == (False, False):
                break
        else:
            raise AssertionError("a renewed key opens nothing")

        assert refused(old) == (True, True)
        assert file.stat().st_mode & 0o777 == 0o600


def test_where_no_keys_are_asked_for_the_header_is_the_callers_own(tmp_path: Path) -> None:
    for server in running(tmp_path):
        server.pack("headers", "headers")
        server.start()
        own = {"Authorization": "Basic abc"}
        fast = server.ask("POST", "/predictions/headers", b"x", own).json
        slow = server.ask("GET", "/predictions/headers", None, own).json
        with Clients(server) as clients:
            metadata = [("authorization", "Basic abc")]
            called = json.loads(clients.predict("headers", "x", metadata=metadata))

        assert fast["Authorization"] == slow["Authorization"] == "Basic abc"
        assert called["authorization"] == "Basic abc"
