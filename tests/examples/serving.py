"""Runs the bash of an example against a real server on free ports, apart from any other server."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

DEFAULT_PORTS = {"inference": 8080, "management": 8081, "metrics": 8082}
TIMEOUT_S = 150


@dataclass(frozen=True, slots=True)
class Workplace:
    """A copy of the examples with servers of its own.

    Args:
        folder: The copy of one example.
        addresses: `host:port` of inference, management and metrics.
        environment: Of the shell.
    """

    folder: Path
    addresses: dict[str, str]
    environment: dict[str, str]

    def bash(self, script: str) -> str:
        """Run bash as a user types it, but on this workplace's ports; return what it prints.

        Raises:
            AssertionError: A command failed; the message has the output and the server's log.
        """
        text = f"set -euo pipefail\n{self._local(script)}\n"
        # Files, not pipes: a server in the background keeps its output open.
        with (
            TemporaryFile("w+", encoding="utf-8") as output,
            TemporaryFile("w+", encoding="utf-8") as errors,
        ):
            status = subprocess.run(
                ["bash", "-c", text],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=errors,
                check=False,
                timeout=TIMEOUT_S,
            ).returncode
            output.seek(0)
            errors.seek(0)
            printed = output.read()
            assert status == 0, f"{text}\n{printed}\n{errors.read()}\n{self._log()}"
        return printed

    def _local(self, script: str) -> str:
        for name, port in DEFAULT_PORTS.items():
            script = script.replace(f"127.0.0.1:{port}", self.addresses[name])
        script = re.sub(r"\bcurl ", "curl --silent --show-error --fail-with-body ", script)
        return "\n".join(
            line + " --ts-config addresses.properties"
            if "serve --start" in line and "--ts-config" not in line
            else line
            for line in script.splitlines()
        )

    def _log(self) -> str:
        logs = sorted(self.folder.glob("logs/*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs)


def make_workplace(
    examples: Path, name: str, target: Path, environment: dict[str, str]
) -> Workplace:
    """Copy the examples and give the copy of one of them free ports."""
    skip = shutil.ignore_patterns("model_store", "Transformer_model", "logs", "__pycache__")
    shutil.copytree(examples, target / "examples", ignore=skip)
    folder = target / "examples" / name
    addresses = {kind: f"127.0.0.1:{port}" for kind, port in free_ports().items()}
    lines = "".join(f"\n{kind}_address=http://{address}" for kind, address in addresses.items())
    lines += "\nenable_grpc=false\n"
    (folder / "addresses.properties").write_text(lines)
    with (folder / "config.properties").open("a") as file:
        file.write(lines)
    scratch = target / "tmp"
    scratch.mkdir()
    own = {
        "TMPDIR": str(scratch),  # the pid file lies there
        "INFERENCE": f"http://{addresses['inference']}",
        "MANAGEMENT": f"http://{addresses['management']}",
    }
    return Workplace(folder, addresses, {**environment, **own})


def free_ports() -> dict[str, int]:
    """Return a free port for each address."""
    held = {kind: socket.create_server(("127.0.0.1", 0)) for kind in DEFAULT_PORTS}
    ports = {kind: server.getsockname()[1] for kind, server in held.items()}
    for server in held.values():
        server.close()
    return ports


def bash_blocks(readme: Path) -> list[str]:
    """Return the bash that a README tells its reader to type."""
    return re.findall(r"```bash\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
