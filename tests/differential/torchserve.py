"""A real TorchServe beside ours: an environment of its own, made once, and a process to ask."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.running import Answer, Running, free_port

VERSION = "0.12.0"
START_S = 500  # a minute on a machine with two cores of its own
_INSTALL_S = 300


def why_not() -> str:
    """Says why there can be no TorchServe here; empty if there can."""
    if shutil.which("java") is None:
        return "TorchServe needs Java, and there is none"
    try:
        environment()
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", "") or str(error)
        return f"TorchServe {VERSION} cannot be installed: {output[-300:]}"
    return ""


def environment() -> Path:
    """Returns the environment with TorchServe; torch and the rest are those of this one."""
    site = sysconfig.get_path("purelib")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marserve"
    key = hashlib.sha256(f"{site} {sys.version}".encode()).hexdigest()[:12]
    target = cache / f"torchserve-{VERSION}-{key}"
    ready = target / "ready"
    if not ready.exists():
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", target], check=True, timeout=_INSTALL_S)
        (own,) = target.glob("lib/python*/site-packages")
        (own / "ours.pth").write_text(site + "\n")
        pip = [str(target / "bin/python"), "-m", "pip", "install", "-q", f"torchserve=={VERSION}"]
        subprocess.run(pip, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
        ready.touch()
    return target


@dataclass
class TorchServe(Running):
    """TorchServe in the foreground, over the same model store and settings as ours."""

    snapshots: bool = False
    loaded: set[str] = field(default_factory=set)

    def start(self) -> TorchServe:
        lines = [f"{k}_address=http://127.0.0.1:{p}" for k, p in self.ports.items()]
        lines += [f"grpc_{kind}_port={port}" for kind, port in self.grpc_ports.items()]
        lines.append(f"initial_worker_port={free_port()}")
        lines.append("vmargs=-XX:+UseSerialGC -XX:TieredStopAtLevel=1")  # quick to start
        (self.root / "config.properties").write_text("\n".join([*lines, self.properties, ""]))
        home = environment()
        command = [str(home / "bin/torchserve"), "--start", "--foreground"]
        command += [] if self.snapshots else ["--ncs"]
        command += ["--ts-config", "config.properties", "--model-store", str(self.store)]
        command += [*self.arguments]
        self.loaded.clear()
        temp = str(self.root / "tmp")
        env = {k: v for k, v in os.environ.items() if not k.startswith("TS_")}
        env |= {"PATH": f"{home}/bin:{env['PATH']}", "TEMP": temp, "TMPDIR": temp}
        with (self.root / "console.txt").open("wb") as console:
            self.process = subprocess.Popen(
                command,
                cwd=self.root,
                env=env | {"LOG_LOCATION": str(self.root / "logs")},
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        self.until(self.answers, "no answer", START_S)
        return self

    def answers(self) -> bool:
        """Tells whether every model has a worker."""
        try:
            names = {m["modelName"] for m in self.manage("GET", "/models").json["models"]}
            self.loaded |= {name for name in names - self.loaded if self.worker_pids(name)}
        except (OSError, ValueError, KeyError):
            return False
        if not self.loaded or names != self.loaded:
            time.sleep(0.3)  # each question is three lines in its log
            return False
        return True

    def stop(self, number: int = signal.SIGKILL, limit_s: float = 30) -> int:
        """Ends it with all of its processes, which are a session of their own."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        return self.process.wait(limit_s)


def shown(answer: Answer) -> str:
    """An answer for the message of a failed comparison."""
    kept = ("content-type", "retry-after", "transfer-encoding")
    headers = {k: v for k, v in answer.headers.items() if k in kept}
    return f"{answer.status} {json.dumps(headers)} {answer.text[:2000]}"
