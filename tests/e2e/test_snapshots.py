"""A server that was killed, or stopped, comes back with what it served."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.running import BIN, Running, running
from tests.e2e.test_workflows import pack as pack_workflow

from marserve.frontend.properties import read_properties

KEYS = "config_snapshots=always\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    yield from running(tmp_path, properties=KEYS, models=None)


def snapshots(server: Running, kind: str = "*") -> list[Path]:
    return sorted((server.root / "logs" / "config").glob(f"*-{kind}.cfg"))


def content(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in read_properties(path)}


def model_snapshot(found: dict[str, str]) -> Any:
    return json.loads(found["model_snapshot"])


def killed(server: Running) -> None:
    """As by a lack of memory: no code of the server runs any more."""
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL


def served(server: Running) -> dict[str, tuple[int, int, bool]]:
    found = {}
    for row in server.manage("GET", "/models").json["models"]:
        name = row["modelName"]
        default = server.describe(name)["modelVersion"]
        for model in server.manage("GET", f"/models/{name}/all").json:
            version = model["modelVersion"]
            workers = model["minWorkers"], model["maxWorkers"], version == default
            found[f"{name} {version}"] = workers
    return found


def test_a_killed_server_comes_back_with_models_versions_defaults_and_workers(
    server: Running,
) -> None:
    server.pack("a", "echo", version="1.0").rename(server.store / "a1.mar")
    server.pack("a", "echo", version="2.0").rename(server.store / "a2.mar")
    server.pack("b", "echo", config="minWorkers: 1\nmaxWorkers: 1\n")
    server.pack("c", "echo")
    server.start()
    server.manage("POST", "/models?url=a1.mar&initial_workers=1&batch_size=3&max_batch_delay=0")
    server.manage("POST", "/models?url=a2.mar&initial_workers=1&response_timeout=7")
    server.manage("POST", "/models?url=b.mar")
    server.manage("POST", "/models?url=c.mar")
    server.manage("PUT", "/models/b?min_worker=2&max_worker=3&synchronous=true")
    server.manage("PUT", "/models/a/2.0/set-default")
    before = served(server)
    killed(server)
    server.start()

    assert (
        {
            "a 1.0": (1, 1, False),
            "a 2.0": (1, 1, True),
            "b 1.0": (2, 3, True),
            "c 1.0": (0, 0, True),
        }
        == before
        == served(server)
    )
    one = server.manage("GET", "/models/a/1.0").json[0]
    assert (3, 0) == (one["batchSize"], one["maxBatchDelay"])
    assert 7 == server.manage("GET", "/models/a/2.0").json[0]["responseTimeout"]
    assert 2 == len(server.worker_pids("b"))


def test_an_answered_change_is_in_a_file_already(server: Running) -> None:
    server.pack("a", "echo")
    server.start()
    server.manage("POST", "/models?url=a.mar&initial_workers=1")
    registered = content(snapshots(server)[-1])
    server.manage("DELETE", "/models/a")
    unregistered = content(snapshots(server)[-1])
    killed(server)
    server.start()

    assert ["a"] == list(json.loads(registered["model_snapshot"])["models"])
    assert {} == json.loads(unregistered["model_snapshot"])["models"]
    assert {} == served(server)


def test_the_file_is_as_torchserve_writes_it(server: Running) -> None:
    server.pack("a", "echo")
    server.start()
    server.manage("POST", "/models?url=a.mar&initial_workers=1")
    server.stop()
    names = [path.name.partition("-")[2] for path in snapshots(server)]
    path = snapshots(server)[-1]
    found = content(path)
    snapshot = json.loads(found["model_snapshot"])

    assert ["startup.cfg", "snapshot.cfg", "shutdown.cfg"] == names
    assert str(server.store) == found["model_store"]
    assert path.name == snapshot["name"]
    assert 1 == snapshot["modelCount"]
    assert isinstance(snapshot["created"], int)
    expected = {
        "defaultVersion": True,
        "marName": "a.mar",
        "minWorkers": 1,
        "maxWorkers": 1,
        "batchSize": 1,
        "maxBatchDelay": 100,
        "responseTimeout": 120,
        "startupTimeout": 120,
        "runtimeType": "python",
    }
    assert expected == snapshot["models"]["a"]["1.0"]
    assert 0o600 == path.stat().st_mode & 0o777


def test_a_snapshot_of_torchserve_starts_a_server(server: Running) -> None:
    server.pack("a", "echo")
    models = {"a": {"1.0": {"defaultVersion": True, "marName": "a.mar", "minWorkers": 2}}}
    models["a"]["1.0"] |= {"maxWorkers": 2, "batchSize": 4, "maxBatchDelay": 100}
    document = json.dumps({"name": "x", "modelCount": 1, "created": 1, "models": models}, indent=2)
    escaped = document.replace("\n", "\\n").replace(":", "\\:").replace("=", "\\=")
    file = server.root / "logs" / "config" / "20200102030405006-shutdown.cfg"
    file.parent.mkdir(parents=True)
    lines = ["#Saving snapshot", "#Thu Jan 02 03:04:05 UTC 2020", "version=0.12.0"]
    lines += ["some_key_of_later=1", "number_of_netty_threads=8", f"model_snapshot={escaped}"]
    file.write_text("\n".join(lines) + "\n")
    server.start()

    assert {"a 1.0": (2, 2, True)} == served(server)
    assert 4 == server.describe("a")["batchSize"]


def test_what_was_never_served_is_loaded_beside_the_restored_models(server: Running) -> None:
    server.models = "all"
    for name in ("kept", "gone"):
        server.pack(name, "echo")
    server.start()
    server.manage("DELETE", "/models/gone")
    killed(server)
    server.pack("late", "echo")
    server.start()

    assert {"kept 1.0", "late 1.0"} == served(server).keys()


def test_workflows_come_back_with_their_workers(server: Running) -> None:
    server.pack("echo", "echo")
    spec = "models: {shout: {url: echo.mar}}\ndag: {first: [shout], shout: [upper]}"
    for name in ("kept", "gone"):
        pack_workflow(server.store, name, spec)
    server.start()
    for name in ("kept", "gone"):
        assert 200 == server.manage("POST", f"/workflows?url={name}.war").status
    server.manage("POST", "/workflows?url=kept.war&workflow_name=other")
    server.manage("PUT", "/models/kept__shout?min_worker=2&max_worker=3&synchronous=true")
    server.manage("DELETE", "/workflows/gone")
    before = server.manage("GET", "/workflows").json, served(server)
    killed(server)
    server.start()
    after = server.manage("GET", "/workflows").json, served(server)
    found = model_snapshot(content(snapshots(server)[-1]))

    assert ["kept", "other"] == [each["workflowName"] for each in before[0]["workflows"]]
    assert (2, 3, True) == before[1]["kept__shout 1.0"]
    assert before == after
    assert {} == found["models"], "nodes come with their workflow"
    assert "QUIETLY" == server.ask("POST", "/wfpredict/kept", b"quietly").text
    killed(server)
    (server.store / "kept.war").unlink()
    server.start()

    assert {"workflows": []} == server.manage("GET", "/workflows").json
    assert "workflow kept=kept.war is not served: Workflow not found in" in server.console


def test_what_was_unregistered_is_remembered_while_a_start_would_load_it(server: Running) -> None:
    server.models = "all"
    server.pack("here", "echo")
    server.start()
    for name in ("one", "two"):
        server.pack(name, "echo")
        server.manage("POST", f"/models?url={name}.mar")
        server.manage("DELETE", f"/models/{name}")
        (server.store / f"{name}.mar").unlink()
    server.manage("DELETE", "/models/here")

    assert ["here.mar"] == model_snapshot(content(snapshots(server)[-1]))["unregistered"]


def test_traffic_rules_and_a_registered_handler_come_back(server: Running) -> None:
    server.pack("a", "echo", version="1.0").rename(server.store / "a1.mar")
    server.pack("a", "echo", version="2.0").rename(server.store / "a2.mar")
    server.start()
    server.manage("POST", "/models?url=a1.mar&initial_workers=1")
    server.manage("POST", "/models?url=a2.mar&initial_workers=1&handler=echo:handle")
    rules = {"weights": {"1.0": 3, "2.0": 1}}
    put = server.manage("PUT", "/models/a/traffic", body=json.dumps(rules))
    killed(server)
    server.start()
    snapshot = json.loads(content(snapshots(server)[-1])["model_snapshot"])

    assert put.json == server.manage("GET", "/models/a/traffic").json
    assert "echo:handle" == snapshot["models"]["a"]["2.0"]["handler"]


@pytest.mark.parametrize(
    ("arguments", "restored"),
    [
        (["--models", "a.mar"], True),
        ([], True),
        (["--models", "b.mar"], False),
        (["--models", "a.mar", "--no-config-snapshots"], False),
    ],
)
def test_a_start_without_a_file_restores_what_was_started_so(
    server: Running, arguments: list[str], restored: bool
) -> None:
    for name in ("a", "b", "more"):
        server.pack(name, "echo")
    sockets = "".join(
        f"{kind}_address=unix:{server.root}/{kind}\n"
        for kind in ("inference", "management", "metrics")
    )
    (server.root / "config.properties").write_text(sockets + "enable_grpc=false\n")
    environment = {**os.environ, "TMPDIR": str(server.root / "tmp")}
    base = [str(BIN / "serve"), "--model-store", "store", "--dt", "--enable-model-api"]

    def serve(*more: str) -> str:
        output = server.root / "output.txt"  # the server in the background keeps it open
        with output.open("wb") as file:
            subprocess.run(
                [*base, *more],
                cwd=server.root,
                env=environment,
                stdout=file,
                stderr=file,
                timeout=60,
            )
        return output.read_text()

    serve("--start", "--models", "a.mar")
    try:
        socket = ["curl", "-s", "-X", "POST", "--unix-socket", f"{server.root}/management"]
        url = "http://x/models?url=more.mar&initial_workers=1"
        subprocess.run([*socket, url], check=True, timeout=60)
        os.kill(int((server.root / "tmp" / ".model_server.pid").read_text()), signal.SIGKILL)
        out = serve("--start", *arguments)
        status = serve("--status")
    finally:
        serve("--stop")

    assert restored == ("model       more 1.0" in status)
    assert restored == ("models are restored from" in out)
    if "b.mar" in arguments:
        assert "was started with a.mar, not b.mar" in out


def test_many_changes_leave_few_files_and_the_last_one_is_right(server: Running) -> None:
    server.pack("a", "echo")
    server.start()
    server.manage("POST", "/models?url=a.mar")
    numbers = [1, 2] * 16
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda n: server.manage("PUT", f"/models/a?min_worker=0&max_worker={n}"), numbers
            )
        )
    most = server.describe("a")["maxWorkers"]
    paths = snapshots(server)
    written = json.loads(content(paths[-1])["model_snapshot"])["models"]["a"]["1.0"]

    assert most == written["maxWorkers"]
    assert len(paths) <= 20
    assert [] == [path.name for path in paths[0].parent.iterdir() if path.suffix != ".cfg"]


def test_where_nothing_can_be_written_models_are_served_all_the_same(server: Running) -> None:
    (server.root / "logs").mkdir()
    (server.root / "logs" / "config").write_text("a file in the place of the folder")
    server.pack("a", "echo")
    server.start()
    registered = server.manage("POST", "/models?url=a.mar&initial_workers=1")

    assert 200 == registered.status
    assert "x" == server.predict("a", "x").text
    assert "the startup snapshot cannot be written" in server.console
