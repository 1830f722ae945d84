"""The real command, with real server processes, without models."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import marserve
from marserve.frontend.pidfile import has_ended
from marserve.frontend.status import UnixConnection

SERVE = Path(sys.executable).with_name("serve")


class Place:
    """A directory with settings in which servers are started; each has its own pid file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("store", "tmp", "out"):
            (path / name).mkdir()
        self.configure()
        names = ("TS_", "MARSERVE_", "LOG_LOCATION", "METRICS_LOCATION", "TEMP", "TMP")
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(names)}
        self.environ["TMPDIR"] = str(path / "tmp")

    def configure(self, text: str = "") -> None:
        addresses = [
            f"{surface}_address=unix:{self.path}/{surface}.sock\n"
            for surface in ("inference", "management", "metrics")
        ]
        (self.path / "config.properties").write_text(
            "".join(addresses) + text + "\nenable_grpc=false\n"
        )

    def serve(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # A server that was started holds what it inherits: a file, and a new one each time.
        path = self.path / "out" / str(len(list((self.path / "out").iterdir())))
        with path.open("w") as out:
            done = subprocess.run(
                [SERVE, *arguments],
                cwd=self.path,
                env=self.environ,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
        done.stdout = path.read_text()
        return done

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.serve("--start", "--model-store", "store", *arguments)

    @property
    def pid(self) -> int:
        return int((self.path / "tmp" / ".model_server.pid").read_text())

    def get(self, surface: str, path: str, key: str = "") -> int:
        connection = UnixConnection(str(self.path / f"{surface}.sock"))
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("p"))  # short: the paths of sockets are limited
    yield place
    place.serve("--stop")


def test_version(place: Place) -> None:
    done = place.serve("-v")

    assert f"marserve {marserve.__version__} (TorchServe API 0.12.0)\n" == done.stdout
    assert 0 == done.returncode


@pytest.mark.parametrize("flags", [("--start", "--stop"), ("-v", "--status"), ("--absent",)])
def test_wrong_usage(place: Place, flags: tuple[str, ...]) -> None:
    assert 2 == place.serve(*flags).returncode


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "Missing mandatory parameter --model-store"),
        (("--model-store", "absent"), "model_store: directory not found: absent"),
        (("--model-store", "store", "--ts-config", "absent"), "--ts-config: file not found"),
        (("--model-store", "store", "--log-config", "x"), "--log-config: file not found: x"),
        (("--model-store", "store", "--cpp-log-config", "x"), "--cpp-log-config: file not found"),
        (
            ("--model-store", "store", "--workflow-store", "x"),
            "workflow_store: directory not found: x",
        ),
    ],
)
def test_what_is_missing_is_named(place: Place, flags: tuple[str, ...], message: str) -> None:
    done = place.serve("--start", *flags)

    assert message in done.stdout
    assert done.stdout.startswith("Invalid configuration: ")
    assert 1 == done.returncode


def test_a_temporary_directory_that_is_not_there(place: Place) -> None:
    place.environ["TEMP"] = "/absent"
    done = place.serve("--status")
    del place.environ["TEMP"]

    assert "Invalid temp directory: /absent" in done.stdout
    assert 1 == done.returncode


def test_print_config(place: Place) -> None:
    place.configure("job_queue_size=7\nvmargs=-Xmx1g\n")
    done = place.serve("--print-config", "--model-store", "store", "--models", "a.mar", "b=c.mar")
    lines = {line.split("  # ")[0].strip(): line for line in done.stdout.splitlines()}

    assert lines["job_queue_size=7"].endswith("# config.properties:4")
    assert lines["load_models=a.mar,b=c.mar"].endswith("# --models")
    assert lines["max_request_size=6553500"].endswith("# default")
    assert "# config.properties:5: vmargs has no effect" in done.stdout
    assert 0 == done.returncode
    assert "\nmodel_store= " in place.serve("--print-config").stdout


def test_the_life_of_a_server(place: Place) -> None:
    assert "not running" in place.serve("--status").stdout
    assert 3 == place.serve("--status").returncode
    done = place.start("--ncs", "--enable-model")
    assert 0 == done.returncode
    assert "Model server started.\n" in done.stdout

    process = psutil.Process(place.pid)
    assert process.pid == os.getsid(process.pid)
    keys = json.loads((place.path / "key_file.json").read_text())
    assert 400 == place.get("inference", "/ping")
    assert 200 == place.get("inference", "/ping", keys["inference"]["key"])
    assert 400 == place.get("management", "/models", keys["inference"]["key"])
    assert 200 == place.get("metrics", "/metrics")

    shown = place.serve("--status")
    assert 0 == shown.returncode
    assert f"pid {process.pid}" in shown.stdout
    assert f"unix:{place.path}/management.sock" in shown.stdout
    assert "models      none" in shown.stdout

    again = place.start()
    assert 1 == again.returncode
    assert "already running" in again.stdout

    stopped = place.serve("--stop")
    assert "marserve has stopped.\n" == stopped.stdout
    assert 0 == stopped.returncode
    assert has_ended(process.pid)
    left = {p.name for p in place.path.iterdir()}
    assert {"config.properties", "logs", "out", "store", "tmp"} == left
    assert [] == list((place.path / "tmp").iterdir())
    assert "marserve is not currently running.\n" == place.serve("--stop").stdout

    log = (place.path / "logs" / "access_log.log").read_text()
    assert '"GET /ping HTTP/1.1" 400 ' in log


def test_a_model_that_cannot_be_loaded_is_a_warning(place: Place) -> None:
    done = place.start("--models", "absent.mar", "x=absent2.mar")

    assert 0 == done.returncode
    assert "absent.mar is not served: Model not found at: absent.mar" in done.stdout
    assert "x=absent2.mar is not served" in done.stdout
    assert done.stdout.index("is not served") < done.stdout.index("Model server started.")


def test_an_address_in_use_is_named(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        place.configure(f"metrics_address={address}\n")
        done = place.start()

    assert 1 == done.returncode
    assert f"config.properties:4: metrics_address: {address} is in use" in done.stdout
    assert "did not start" in done.stdout
    assert [] == list((place.path / "tmp").iterdir())
    assert not (place.path / "key_file.json").exists()


def test_a_socket_of_a_dead_server_is_replaced_and_a_live_one_is_not(place: Place) -> None:
    path = str(place.path / "metrics.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        assert "is in use by another program" in place.start().stdout
    assert Path(path).exists()
    assert 0 == place.start().returncode
    assert 200 == place.get("metrics", "/metrics")


def test_what_a_killed_server_leaves_is_no_hindrance(place: Place) -> None:
    assert 0 == place.start().returncode
    watched = os.pidfd_open(place.pid)
    os.kill(place.pid, signal.SIGKILL)
    select.select([watched], [], [], 30)
    os.close(watched)

    assert 3 == place.serve("--status").returncode
    done = place.start()
    assert "Removing orphan pid file.\n" in done.stdout
    assert 0 == done.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_foreground(place: Place, number: signal.Signals) -> None:
    with subprocess.Popen(
        [SERVE, "--start", "--foreground", "--model-store", "store", "--disable-token"],
        cwd=place.path,
        env=place.environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert any(line == "Model server started.\n" for line in process.stdout)
        assert process.pid == place.pid
        assert not (place.path / "key_file.json").exists()
        assert 200 == place.get("inference", "/ping")
        process.send_signal(number)
        process.communicate(timeout=30)

    assert 0 == process.returncode


def test_one_address_for_all(place: Place) -> None:
    address = f"unix:{place.path}/all.sock"
    (place.path / "config.properties").write_text(
        f"inference_address={address}\nmanagement_address={address}\nmetrics_address={address}\n"
        "enable_grpc=false\n"
    )
    assert 0 == place.start("--dt").returncode

    assert [200] * 3 == [place.get("all", path) for path in ("/ping", "/models", "/metrics")]


def test_https(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    request = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test"
    subprocess.run(
        [*request.split(), "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=place.path,
        check=True,
        capture_output=True,
    )
    files = "certificate_file=cert.pem\nprivate_key_file="
    place.configure(f"management_address=https://127.0.0.1:{port}\n{files}cert.pem")
    done = place.start("--dt")
    assert 1 == done.returncode
    assert "certificate_file, private_key_file: " in done.stdout
    assert "do not fit" in done.stdout

    place.configure(f"management_address=https://127.0.0.1:{port}\n{files}key.pem")
    assert 0 == place.start("--dt").returncode
    assert "models      none" in place.serve("--status").stdout
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/models")
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.getresponse()
    connection.close()


def test_secrets_reach_neither_the_arguments_nor_the_file(place: Place) -> None:
    place.environ["MARSERVE_INFERENCE_KEY"] = "an-inference-key"
    assert 0 == place.start().returncode

    assert 200 == place.get("inference", "/ping", "an-inference-key")
    assert "an-inference-key" not in " ".join(psutil.Process(place.pid).cmdline())
    assert "an-inference-key" not in (place.path / "key_file.json").read_text()


def test_a_signal_while_a_model_loads_ends_the_server(place: Place) -> None:
    model = place.path / "store" / "slow"
    (model / "MAR-INF").mkdir(parents=True)
    (model / "h.py").write_text(
        "import time\nprint('loading', flush=True)\ntime.sleep(1000)\n"
        "def handle(data, context):\n    return data\n"
    )
    manifest = {
        "runtime": "python",
        "model": {"modelName": "slow", "handler": "h.py", "modelVersion": "1.0"},
    }
    (model / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
    with subprocess.Popen(
        [SERVE, "--foreground", "--model-store", "store", "--models", "slow"],
        cwd=place.path,
        env=place.environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert any("MODEL_LOG - loading" in line for line in process.stdout)
        workers = psutil.Process(process.pid).children()
        process.terminate()
        output, _ = process.communicate(timeout=60)

    assert 0 == process.returncode
    assert "Model server started." not in output
    assert workers
    assert all(has_ended(worker.pid) for worker in workers)
