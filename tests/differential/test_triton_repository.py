"""One model repository for Triton and for us: its models, an ensemble, an exported archive.

Calls between models are left out: they end this build of Triton now and then.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.differential.peers import Triton, why_not
from tests.e2e.running import BIN, SERVICES, Answer, Running, pack, running

import marserve

MODELS = ("add", "completing", "ens_pipeline", "mixed")
Pair = tuple["Repository", Running]


class Repository(Triton):
    """Triton with marserve importable in its Python backend."""

    def _run(self, command: list[str], env: dict[str, str]) -> None:
        """Its stub takes modules from the environment of the first ``python`` in the path alone."""
        packages = self.root / "packages"
        packages.mkdir()
        for module in (marserve, msgspec, yaml):
            assert module.__file__ is not None
            (packages / module.__name__).symlink_to(Path(module.__file__).resolve().parent)
        made = self.root / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
        (own,) = made.glob("lib/python*/site-packages")
        (theirs,) = self.installed().glob("lib/python*/site-packages")
        (own / "more.pth").write_text(f"{packages}\n{theirs}\n")
        super()._run(command, env | {"PATH": f"{made / 'bin'}:{env['PATH']}"})

    def _answers(self) -> bool:
        try:
            ready = [self.ask("GET", f"/v2/models/{m}/ready").status for m in (*MODELS, "square")]
        except OSError:
            return False
        return ready == [200] * len(ready)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if reason := why_not(Repository):
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("repository")
    archive = pack(root / "archives", "square", "rejecting", "batchSize: 4\ndeviceType: cpu\n")
    theirs = Repository(root / "theirs")
    for ours in running(root / "ours"):
        for server in (theirs, ours):
            for model in MODELS:
                shutil.copytree(SERVICES / "triton" / model, server.store / model)
            command = [str(BIN / "serve"), "export", "--triton", str(archive), str(server.store)]
            subprocess.run(command, check=True, capture_output=True, env=dict(os.environ))
        try:
            with ThreadPoolExecutor(1) as pool:
                started = pool.submit(theirs.start)
                ours.start()
                started.result()
            yield theirs, ours
        finally:
            if theirs.process is not None:
                theirs.stop()


def tensor(name: str, datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def pair(first: float, shape: tuple[int, ...] = (2, 2), names: str = "AB") -> list[dict[str, Any]]:
    count = 1
    for size in shape:
        count *= size
    return [
        tensor(name, "FP32", list(shape), [first] * count if name in "AX" else [1.0] * count)
        for name in names
    ]


TEXT = tensor("TEXT", "BYTES", [2], ["ab", "cd"])
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a model": ("add", {"inputs": pair(2.5)}),
    "a version": ("add/versions/1", {"inputs": pair(2.5), "id": "7"}),
    "a version that there is not": ("add/versions/9", {"inputs": pair(1)}),
    "one output": ("add", {"inputs": pair(1), "outputs": [{"name": "SUM"}]}),
    "an unknown output": ("add", {"inputs": pair(1), "outputs": [{"name": "X"}]}),
    "an error of its own": ("add", {"inputs": pair(-1)}),
    "an exception": ("add", {"inputs": pair(-2)}),
    "an input is missing": ("add", {"inputs": pair(1)[:1]}),
    "an unknown input": ("add", {"inputs": pair(1, names="ABC")}),
    "too many rows": ("add", {"inputs": pair(1, (9, 2))}),
    "no rows": ("add", {"inputs": pair(1, (2,))}),
    "texts": ("mixed", {"inputs": [TEXT], "outputs": [{"name": "UPPER"}]}),
    "reshaped": (
        "mixed",
        {"inputs": [TEXT, tensor("TIMES", "INT32", [1], [2])], "id": "5", "parameters": {"p": 3}},
    ),
    "classes": (
        "mixed",
        {
            "inputs": [TEXT],
            "outputs": [{"name": "CLASSES", "parameters": {"classification": 2}}],
        },
    ),
    "completed by the model": (
        "completing",
        {"inputs": [tensor("X", "INT64", [3, 2], [1, 2, 3, 4, 5, 6])]},
    ),
    "an ensemble": ("ens_pipeline", {"inputs": pair(3, names="XY")}),
    "an error of a step": ("ens_pipeline", {"inputs": pair(-1, names="XY")}),
    "an exported archive": (
        "square",
        {"inputs": [tensor("data", "BYTES", [3, 1], ["2", "1.5", "-3"])]},
    ),
    "an error of an exported archive": (
        "square",
        {"inputs": [tensor("data", "BYTES", [2, 1], ["2", "two"])]},
    ),
}


@pytest.mark.parametrize("name", CASES, ids=lambda name: name.replace(" ", "-"))
def test_both_answer_the_same(servers: Pair, name: str) -> None:
    model, body = CASES[name]

    theirs, ours = (
        server.ask("POST", f"/v2/models/{model}/infer", json.dumps(body)) for server in servers
    )

    assert told(ours) == told(theirs), f"{ours.text}\n{theirs.text}"


@pytest.mark.parametrize("model", MODELS)
def test_both_describe_a_model_in_the_same_way(servers: Pair, model: str) -> None:
    theirs, ours = (server.ask("GET", f"/v2/models/{model}").json for server in servers)
    assert ours == theirs

    theirs, ours = (server.ask("GET", f"/v2/models/{model}/config").json for server in servers)
    for key in ("name", "input", "output", "max_batch_size", "version_policy", "parameters"):
        assert ours[key] == theirs[key]


def told(answer: Answer) -> tuple[int, Any]:
    if answer.status != 200:
        return answer.status, None
    outputs = {each["name"]: each for each in answer.json["outputs"]}
    return 200, (outputs, answer.json["model_version"], answer.json.get("id"))
