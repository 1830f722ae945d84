"""The demo itself from end to end, and the small programs it uses."""

from __future__ import annotations

import http.server
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from demo.show_importances import table
from serving import free_ports

DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo"


def run_demo(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The demo in the environment that runs the tests."""
    environment = {**os.environ, "VENV": sys.prefix, "TMPDIR": str(tmp_path)}
    command = [str(DEMO), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=170
    )


def three_free_ports() -> int:
    """The first of three neighbouring ports that are free now."""
    for base in range(free_ports()["inference"], 65000, 3):
        try:
            for port in range(base, base + 3):
                with closing(socket.create_server(("127.0.0.1", port))):
                    pass
        except OSError:
            continue
        return base
    raise AssertionError("no three neighbouring ports are free")


def test_the_demo_shows_everything_and_leaves_nothing(tmp_path: Path) -> None:
    base = three_free_ports()

    done = run_demo(tmp_path, "--port-base", str(base))

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    labels = re.findall(r"^(Positive|Negative)$", done.stdout, re.MULTILINE)
    assert labels == ["Positive", "Negative", "Positive", "Negative", "Positive"]
    assert "Workers scaled to 2 for model: sentiment" in done.stdout
    assert re.search(r"^  wonderful +\+0\.\d+  \++$", done.stdout, re.MULTILINE)
    assert re.search(r"^  dull +\+0\.\d+  \++$", done.stdout, re.MULTILINE)
    assert "ts_inference_requests_total{" in done.stdout
    assert "held-out accuracy 0.843" in done.stdout
    assert list(tmp_path.iterdir()) == []
    with closing(socket.create_server(("127.0.0.1", base))):
        pass  # nobody listens there any more


def test_the_demo_says_which_port_is_in_use(tmp_path: Path) -> None:
    base = three_free_ports()
    with closing(socket.create_server(("127.0.0.1", base + 1))):
        done = run_demo(tmp_path, "--port-base", str(base))

    assert done.returncode == 1
    assert f"in use on 127.0.0.1: port {base + 1}" in done.stderr
    assert "--port-base" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ports"], "unknown argument '--ports'"),
        (["--port-base", "65534"], "from 1 to 65533, got '65534'"),
        (["--port-base", "many"], "got 'many'"),
        (["--port-base"], "got ''"),
    ],
)
def test_the_demo_refuses_wrong_arguments(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = run_demo(tmp_path, *arguments)

    assert done.returncode == 1
    assert message in done.stderr


def test_the_demo_helps(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--help")

    assert done.returncode == 0
    assert "--port-base N" in done.stdout
    assert "--keep" in done.stdout


def test_importances_become_bars() -> None:
    explanation = {"words": ["[CLS]", "good", "bad", "[SEP]"], "importances": [0.9, 0.8, -0.4, 0.0]}

    good, bad = table(explanation).splitlines()

    assert good == "  good          +0.800  ++++++++++++++++++++++++"
    assert bad == "  bad           -0.400  ------------"


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        text = f"{self.command} {self.path} {self.headers.get('Content-Type')} {body}".encode()
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = answer

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture
def echo() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "status", "answer"),
    [
        (["{}/ping"], 0, "GET /ping None "),
        (["-X", "PUT", "{}/models/m?min_worker=2"], 0, "PUT /models/m?min_worker=2 None "),
        (
            ["{}/predictions/m", "-H", "Content-Type: text/plain", "-d", "good"],
            0,
            "POST /predictions/m text/plain good",
        ),
        (["{}/missing"], 22, "GET /missing None "),
        (["http://example.invalid/"], 2, ""),
    ],
)
def test_the_stand_in_for_curl(
    arguments: list[str], status: int, answer: str, echo: str, examples: Path
) -> None:
    command = [sys.executable, str(examples / "demo" / "curl.py")]
    command += [argument.format(echo) for argument in arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (status, answer)
