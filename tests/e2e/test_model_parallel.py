"""A transformers model that two processes share answers, explains and falls like any other."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import tiny_models
from tests.e2e.running import BIN, Running, running
from tests.handlers.serving import ask, load

GENERATION = "  generation:\n    max_new_tokens: 6\n    do_sample: false\n"
PARALLEL = "parallelType: {}\ntorchrun:\n  nproc-per-node: 2\n"
TEXTS = ["the film is", "what a good movie: it is in"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    yield from running(tmp_path)


def pack(server: Running, name: str, model: Path, config: str) -> None:
    file = server.root / f"{name}.yaml"
    file.write_text(config)
    extra = ",".join(str(f) for f in model.iterdir() if f.suffix in (".json", ".txt"))
    command = [str(BIN / "archive-model"), "--model-name", name, "--version", "1.0"]
    command += ["--handler", "transformer_handler", "--config-file", str(file)]
    command += ["--serialized-file", str(model / "model.safetensors"), "--extra-files", extra]
    command += ["--export-path", str(server.store)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def test_two_processes_that_share_a_model_answer_as_one(server: Running, tmp_path: Path) -> None:
    model = tiny_models.build("gpt2", "text_generation", tmp_path / "gpt2")
    handler = "handler:\n  mode: text_generation\n" + GENERATION
    for kind in ("tp", "pp"):
        settings = (
            PARALLEL.format(kind)
            + "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 2\nstartupTimeout: 240\n"
        )
        pack(server, kind, model, settings + handler + "  model_parallel: true\n")
    server.models = None
    server.start()
    for kind in ("tp", "pp"):
        path = f"/models?url={kind}.mar&initial_workers=1&synchronous=true"
        assert 200 == server.manage("POST", path, timeout_s=300).status

    alone = load(
        model, mode="text_generation", generation={"max_new_tokens": 6, "do_sample": False}
    )
    expected = [ask(alone, [text])[0] for text in TEXTS]
    found = {kind: [a.text for a in server.together(kind, TEXTS)] for kind in ("tp", "pp")}
    explained = server.ask("POST", "/explanations/tp", TEXTS[0], {"Content-Type": "text/plain"})

    assert {"tp": expected, "pp": expected} == found
    assert 200 == explained.status
    assert explained.json["words"]

    (worker,) = server.describe("tp")["workers"]
    os.kill(worker["rankPids"][1], signal.SIGKILL)
    again = server.until(
        lambda: [
            w
            for w in server.describe("tp")["workers"]
            if w["status"] == "READY" and w["pid"] != worker["pid"]
        ],
        "no new group",
    )

    assert expected == [server.predict("tp", text).text for text in TEXTS]
    assert not set(again[0]["rankPids"]) & set(worker["rankPids"])
    assert 0 == server.stop()
