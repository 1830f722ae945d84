"""A real server for a test: started as a user starts it, on ports and in folders of its own."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SERVICES = Path(__file__).resolve().parents[1] / "services"
BIN = Path(sys.executable).parent
START_S = 60

# Below the range from which the kernel takes ports for outgoing connections, and apart from those
# of the other test processes.
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_first = int(os.environ.get("MARSERVE_TEST_PORTS", "20000")) + 600 * _process
_ports = itertools.cycle(range(_first, _first + 600))


def free_port() -> int:
    """A port of this test process's own that nobody listens on."""
    while True:
        port = next(_ports)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str(self.json["message"])


def pack(store: Path, name: str, service: str, config: str = "", version: str = "1.0") -> Path:
    """Packs a handler of tests/services with archive-model."""
    store.mkdir(parents=True, exist_ok=True)
    command = [str(BIN / "archive-model"), "--model-name", name, "--version", version, "--force"]
    command += ["--handler", str(SERVICES / f"{service}.py"), "--export-path", str(store)]
    if config:
        file = store.parent / f"{name}-{version}" / "model-config.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(config)
        command += ["--config-file", str(file)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return store / f"{name}.mar"


@dataclass
class Running:
    """A server in the foreground; ``start`` and ``stop`` it."""

    root: Path
    properties: str = ""
    arguments: tuple[str, ...] = ("--disable-token-auth", "--enable-model-api")
    models: str | None = "all"
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.store = self.root / "store"
        self.store.mkdir(parents=True, exist_ok=True)
        (self.root / "tmp").mkdir(exist_ok=True)
        self.ports = {kind: free_port() for kind in ("inference", "management", "metrics")}
        self.grpc_ports = {kind: free_port() for kind in ("inference", "management")}

    def pack(self, name: str, service: str, config: str = "", version: str = "1.0") -> Path:
        return pack(self.store, name, service, config, version)

    def start(self) -> Running:
        self.launch()
        self.wait_for("Model server started.")
        return self

    def launch(self) -> None:
        """Starts the process, and does not wait for it."""
        lines = [f"{k}_address=http://127.0.0.1:{p}" for k, p in self.ports.items()]
        lines += [f"grpc_{k}_port={p}" for k, p in self.grpc_ports.items()]
        (self.root / "config.properties").write_text("\n".join([*lines, self.properties, ""]))
        command = [str(BIN / "serve"), "--foreground", "--model-store", str(self.store)]
        command += ["--ts-config", str(self.root / "config.properties"), *self.arguments]
        if self.models:
            command += ["--models", self.models]
        env = {k: v for k, v in os.environ.items() if not k.startswith("TS_")}
        env |= {"TMPDIR": str(self.root / "tmp"), "LOG_LOCATION": str(self.root / "logs")}
        with (self.root / "console.txt").open("wb") as console:
            self.process = subprocess.Popen(
                command, cwd=self.root, env=env | self.environment, stdout=console, stderr=console
            )

    @property
    def console(self) -> str:
        return (self.root / "console.txt").read_text()

    def wait_for(self, text: str, limit_s: float = START_S) -> None:
        """Waits until the console shows a text."""
        self.until(lambda: text in self.console, f"no {text!r} on the console", limit_s)

    def until(self, condition: Any, what: str, limit_s: float = START_S) -> Any:
        """Asks again and again; there is no event to wait for across processes."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if value := condition():
                return value
            assert self.process is not None
            status = self.process.poll()
            assert status is None, f"the server ended, status {status}: {self.console}"
            time.sleep(0.02)
        raise AssertionError(f"{what} within {limit_s:g} s\n{self.console}")

    def stop(self, number: int = signal.SIGTERM, limit_s: float = 30) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(limit_s)
        finally:
            self.process.kill()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: dict[str, str] | None = None,
        kind: str = "inference",
        timeout_s: float = 60,
    ) -> Answer:
        """One request on a connection of its own."""
        data = body.encode() if isinstance(body, str) else body
        begun = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[kind], timeout=timeout_s)
        try:
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            content = response.read()
            given = {k.lower(): v for k, v in response.getheaders()}
            return Answer(response.status, given, content, time.perf_counter() - begun)
        finally:
            connection.close()

    def predict(self, name: str, body: bytes | str = b"", **more: Any) -> Answer:
        headers = {"Content-Type": "text/plain", **more.pop("headers", {})}
        return self.ask("POST", f"/predictions/{name}", body, headers, **more)

    def manage(self, method: str, path: str, **more: Any) -> Answer:
        return self.ask(method, path, kind="management", **more)

    def describe(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.manage("GET", f"/models/{name}").json[0]
        return found

    def worker_pids(self, name: str) -> list[int]:
        """Process ids of the workers that are ready."""
        workers = self.describe(name)["workers"]
        return [w["pid"] for w in workers if w["status"] == "READY"]

    def together(self, name: str, bodies: list[str]) -> list[Answer]:
        """Sends requests at the same time; the answers are in the order of the bodies."""
        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(lambda b: self.predict(name, b), bodies))


def running(root: Path, **more: Any) -> Iterator[Running]:
    """Yields a server to be started, and stops it."""
    server = Running(root, **more)
    try:
        yield server
    finally:
        if server.process is not None:
            server.stop()
