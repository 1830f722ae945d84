"""Snapshots change hands: TorchServe's start our server, and ours start TorchServe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.differential.torchserve import TorchServe, why_not
from tests.e2e.running import Running, pack, running

from marserve.frontend.properties import read_properties

pytestmark = pytest.mark.timeout(900)  # a real TorchServe takes its time on a busy machine
FLAGS = ("--disable-token-auth", "--enable-model-api")


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Running]:
    if reason := why_not():
        pytest.skip(reason)
    yield from running(tmp_path / "ours", arguments=FLAGS, models="a.mar")


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[TorchServe]:
    arguments = (*FLAGS, "--models", "a.mar")
    properties = "default_workers_per_model=1\n"
    server = TorchServe(tmp_path / "theirs", properties, arguments, None, snapshots=True)
    yield server
    if server.process is not None:
        server.stop()


def last(server: Running) -> dict[str, str]:
    path = sorted((server.root / "logs" / "config").glob("*-snapshot.cfg"))[-1]
    return {entry.key: entry.value for entry in read_properties(path)}


def in_force(server: Running) -> dict[str, Any]:
    keys = ("minWorkers", "maxWorkers", "batchSize", "maxBatchDelay", "responseTimeout")
    return {
        f"{m['modelName']} {m['modelVersion']}": {key: m[key] for key in keys}
        for name in ("a", "b")
        for m in server.manage("GET", f"/models/{name}/all").json
    }


def change(server: Running) -> None:
    url = "/models?url=b.mar&initial_workers=1&batch_size=3&max_batch_delay=20&response_timeout=9"
    assert 200 == server.manage("POST", f"{url}&synchronous=true").status
    assert 200 == server.manage("PUT", "/models/a?min_worker=2&synchronous=true").status


def server_writes(server: Running) -> dict[str, Any]:
    """What our server writes of the models that it has."""
    server.stop()
    path = sorted((server.root / "logs" / "config").glob("*-shutdown.cfg"))[-1]
    found = {entry.key: entry.value for entry in read_properties(path)}
    written: dict[str, Any] = json.loads(found["model_snapshot"])
    return written


def test_theirs_start_our_server_and_ours_is_like_it(theirs: TorchServe, ours: Running) -> None:
    for server in (theirs, ours):
        for name in ("a", "b"):
            pack(server.store, name, "echo")
    theirs.start()
    change(theirs)
    expected = in_force(theirs)
    snapshot = json.loads(last(theirs)["model_snapshot"])
    ours.properties = f"model_snapshot={json.dumps(snapshot)}\n"
    ours.start()
    restored = in_force(ours)
    written = server_writes(ours)

    assert expected == restored
    assert {"unregistered"} == written.keys() - snapshot.keys()
    assert snapshot["models"] == written["models"]
    assert snapshot["modelCount"] == written["modelCount"]


def test_ours_start_torchserve(theirs: TorchServe, ours: Running) -> None:
    for server in (theirs, ours):
        for name in ("a", "b"):
            pack(server.store, name, "echo")
    ours.start()
    change(ours)
    expected = in_force(ours)
    theirs.properties += f"model_snapshot={last(ours)['model_snapshot']}\n"
    theirs.start()

    assert expected == in_force(theirs)
