"""A real Triton and a real MLServer beside ours, over the same folders."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tests.differential.environments import cached, reason
from tests.e2e.running import Running

FOLDERS = Path(__file__).parent
START_S = 90


@dataclass
class Peer(Running):
    """Another server of the V2 protocol; its session ends with it."""

    def _run(self, command: list[str], env: dict[str, str]) -> None:
        with (self.root / "console.txt").open("wb") as console:
            self.process = subprocess.Popen(
                command,
                cwd=self.root,
                env={**os.environ, **env},
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        self.until(self._answers, "no answer", START_S)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask("GET", "/v2/models/mirror/ready").status == 200
        return False

    def stop(self, number: int = signal.SIGKILL, limit_s: float = 30) -> int:
        """Ends it with all of its processes."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        return self.process.wait(limit_s)


class Triton(Peer):
    """Triton 2.51 with its Python backend, out of the wheel of pytriton."""

    title = "Triton"

    @staticmethod
    def installed() -> Path:
        """Returns the environment; its stub wants numpy 1 for the arrays of models."""
        return cached("triton", "nvidia-pytriton==0.7.0", "numpy==1.26.4", flags=("--no-deps",))

    def start(self) -> Triton:
        installed = self.installed()
        (site,) = installed.glob("lib/python*/site-packages")
        home = site / "pytriton" / "tritonserver"
        backend = self.root / "backends" / "python"
        shutil.copytree(home / "backends" / "python", backend)
        stub = f"{sys.version_info.major}.{sys.version_info.minor}/triton_python_backend_stub"
        shutil.copy(home / "python_backend_stubs" / stub, backend)
        libraries = [str(site / "nvidia_pytriton.libs"), str(sysconfig.get_config_var("LIBDIR"))]
        command = [str(home / "bin" / "tritonserver"), f"--model-repository={self.store}"]
        command += [f"--backend-directory={backend.parent}", "--allow-grpc=false"]
        command += [f"--cache-directory={home / 'caches'}", "--allow-metrics=false"]
        command += ["--http-address=127.0.0.1", f"--http-port={self.ports['inference']}"]
        env = {"LD_LIBRARY_PATH": ":".join(libraries), "CUDA_VISIBLE_DEVICES": ""}
        self._run(command, env | {"PATH": f"{installed}/bin:{os.environ['PATH']}"})
        return self


class MLServer(Peer):
    """MLServer 1.7.1; with a newer uvloop its workers never start."""

    title = "MLServer"

    @staticmethod
    def installed() -> Path:
        """Returns the environment."""
        return cached("mlserver", "mlserver==1.7.1", "uvloop<0.22")

    def start(self) -> MLServer:
        settings = {"host": "127.0.0.1", "http_port": self.ports["inference"], "debug": False}
        settings |= {"grpc_port": self.grpc_ports["inference"], "parallel_workers": 1}
        settings |= {"metrics_port": self.ports["metrics"]}
        (self.store / "settings.json").write_text(json.dumps(settings))
        home = self.installed()
        without = {"PYTHONPATH": "", "PATH": f"{home}/bin:{os.environ['PATH']}"}
        self._run([str(home / "bin" / "mlserver"), "start", str(self.store)], without)
        return self


def why_not(peer: type[Triton] | type[MLServer]) -> str:
    """Says why there can be no such server here; empty if there can."""
    try:
        peer.installed()
    except (OSError, subprocess.SubprocessError) as error:
        return reason(peer.title, error)
    return ""
