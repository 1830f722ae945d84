"""The real ``serve``, started for a measurement and stopped after it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

import psutil
from load import Target

PORTS = ("inference", "management", "metrics")


class ServerError(Exception):
    """The server did not come up, or answered wrong."""


def command(name: str) -> str:
    """Returns the path of one of marserve's commands: of this environment, else of PATH.

    Raises:
        ServerError: If it is not installed.
    """
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ServerError(f"{name} is not installed; run scripts/setup")
    return found


class Server:
    """A server with its own ports, model store and working directory.

    Args:
        store: Model store.
        archive: Name of the archive in it that is loaded.
        work: Existing directory for configuration, logs and temporary files.
        settings: Lines for config.properties besides the addresses.
        scratch: Folder for temporary files; None for ``work``.
    """

    def __init__(
        self,
        store: Path,
        archive: str,
        work: Path,
        settings: dict[str, object],
        scratch: Path | None = None,
    ) -> None:
        self._store, self._archive, self._work, self._settings = store, archive, work, settings
        self._scratch = scratch or work
        self.ports: dict[str, int] = {}

    def __enter__(self) -> Server:
        held = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
        self.ports = {n: s.getsockname()[1] for n, s in zip(PORTS, held, strict=True)}
        for each in held:
            each.close()
        lines = {f"{name}_address": f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
        lines["enable_grpc"] = "false"
        config = self._work / "config.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in {**lines, **self._settings}.items()))
        argv = [command("serve"), "--start", "--foreground", "--disable-token-auth", "--ncs"]
        argv += ["--ts-config", str(config), "--model-store", str(self._store)]
        self._log = (self._work / "serve.log").open("wb")
        self.began = time.perf_counter()
        self._process = psutil.Popen(
            [*argv, "--models", self._archive],
            cwd=self._work,
            env={**os.environ, "TMPDIR": str(self._scratch)},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        family = self.family()
        self._process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=15)
        for process in alive:
            process.kill()
        self._log.close()

    def url(self, path: str) -> str:
        """Returns the URL of a path on the inference port."""
        return f"http://127.0.0.1:{self.ports['inference']}{path}"

    def wait_answer(self, target: Target, timeout_s: float = 120.0) -> tuple[float, bytes]:
        """Asks until the first success; returns the seconds since the launch, and the answer.

        Raises:
            ServerError: If the server ends or does not answer in time; with the end of its log.
        """
        headers = {"Content-Type": target.content_type, **dict(target.headers)}
        request = urllib.request.Request(target.url, target.body, headers, method="POST")
        while time.perf_counter() < self.began + timeout_s and self._process.poll() is None:
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return time.perf_counter() - self.began, response.read()
            except (urllib.error.URLError, ConnectionError):
                time.sleep(
                    0.01
                )  # what is waited for is another program's state: nothing to wait on
        tail = (self._work / "serve.log").read_text(errors="replace")[-3000:]
        raise ServerError(f"no answer from {target.url}; the server said:\n{tail}")

    def family(self) -> list[psutil.Process]:
        """Returns the server's process and its descendants."""
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def pss_mb(self) -> float:
        """Returns the proportional set sizes of all processes together, in MB."""
        return sum(process.memory_full_info().pss for process in self.family()) / 2**20

    def cpu_s(self) -> float:
        """Returns the processor time that all processes have used, in seconds."""
        times = [process.cpu_times() for process in self.family()]
        return sum(t.user + t.system for t in times)
