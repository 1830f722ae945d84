"""Every form in which an archive may come: directory, .tar.gz, URL with a hash, with packages."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import BIN, SERVICES, Running, running

JSON = {"Content-Type": "application/json"}
WHEEL = "tiny_package-1.0-py3-none-any.whl"
HANDLER = """\
import os
import tiny_package


def handle(data, context):
    return data and [f"{tiny_package.VALUE} {os.path.dirname(tiny_package.__file__)}"] * len(data)
"""


class Web:
    """Files of a folder over HTTP, and what was asked for."""

    def __init__(self, folder: Path) -> None:
        asked = self.asked = list[str]()

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                asked.append(self.path)

        handler = functools.partial(Handler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def pack(folder: Path, name: str, *more: str, handler: str = str(SERVICES / "echo.py")) -> None:
    command = [str(BIN / "archive-model"), "--model-name", name, "--version", "1.0"]
    command += ["--handler", handler, "--export-path", str(folder), *more]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)


def write_wheel(folder: Path) -> None:
    info = "tiny_package-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("tiny_package.py", "VALUE = 42\n")
        text = "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n"
        wheel.writestr(f"{info}/METADATA", text)
        text = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", text)
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "web").mkdir()
    web = Web(tmp_path / "web")
    yield web
    web.server.shutdown()
    web.server.server_close()


def test_directories_archives_and_urls(tmp_path: Path, web: Web) -> None:
    properties = f"allowed_urls={web.address}/.*\ndefault_workers_per_model=1\n"
    properties += "config_snapshots=always\n"
    for server in running(tmp_path / "server", properties=properties):
        pack(server.store, "folder", "--archive-format", "no-archive")
        pack(server.store, "tar", "--archive-format", "tgz")
        pack(tmp_path, "outside", "--archive-format", "no-archive")
        pack(tmp_path / "web", "remote")
        server.start()
        digest = hashlib.sha256((tmp_path / "web" / "remote.mar").read_bytes()).hexdigest()
        url = f"{web.address}/remote.mar"

        def register(url: str, server: Running = server) -> tuple[int, str]:
            answer = server.manage("POST", "/models", body=json.dumps({"url": url}), headers=JSON)
            return answer.status, answer.text

        wrong = register(f"{url}#sha256={'0' * 64}")
        assert wrong[0] == 400
        assert digest in wrong[1]
        assert not (server.store / "remote.mar").exists()
        assert register("http://127.0.0.1:1/remote.mar")[0] == 404, "not an allowed URL"
        assert register(f"{url}#sha256={digest}")[0] == 200
        assert register(str(tmp_path / "outside"))[0] == 200
        for name in ("folder", "tar", "remote", "outside"):
            assert server.predict(name, name).text == name
        asked = len(web.asked)
        server.stop()
        server.start()

        assert server.predict("remote", "again").text == "again"
        assert len(web.asked) == asked, "a restart needs no network"
        server.manage("DELETE", "/models/remote")
        assert not (server.store / "remote.mar").exists()
        assert (server.store / "tar.tar.gz").exists()


@pytest.mark.parametrize("venv", [False, True], ids=["packages", "environment"])
def test_packages_of_a_model_are_installed_once(tmp_path: Path, venv: bool) -> None:
    """Each version of an archive with the same list has the same folder: no second install."""
    (tmp_path / "h.py").write_text(HANDLER)
    (tmp_path / "model-config.yaml").write_text(f"minWorkers: 1\nmaxWorkers: 1\nuseVenv: {venv}\n")
    write_wheel(tmp_path)
    (tmp_path / "requirements.txt").write_text(f"./{WHEEL}\n")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    more = ["--requirements-file", "requirements.txt", "--extra-files", WHEEL]
    more += ["--config-file", "model-config.yaml"]
    properties = "install_py_dep_per_model=true\nconfig_snapshots=off\n"
    for server in running(tmp_path / "server", properties=properties, environment=environment):
        pack(tmp_path, "needy", *more, handler="h.py")
        (tmp_path / "needy.mar").rename(server.store / "needy.mar")
        server.start()
        first = server.predict("needy", "x").text
        server.stop()
        (tmp_path / WHEEL).unlink()
        begun = server.start().predict("needy", "x").text

        assert first.startswith("42 "), server.console
        assert first == begun
        log = (server.root / "logs" / "ts_log.log").read_text()
        assert log.count("installing the packages of model needy") == 1
