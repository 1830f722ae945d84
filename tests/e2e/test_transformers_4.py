"""An archive whose handler needs transformers 4, in an environment of its own: really installed.

The installation is kept in the user's cache, so that the next run needs no network.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests import tiny_models
from tests.e2e.running import BIN, SERVICES, Running

CONFIG = "useVenv: true\nminWorkers: 1\nmaxWorkers: 1\nhandler: {max_length: 16}\n"
VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nfine\nday\nthe\nfilm\nwas\nbad\ngood\n"


def pack(server: Running, files: Path) -> Path:
    """Packs it as its owner did for TorchServe, with the requirements file as the one addition."""
    saved = tiny_models.build("bert", "sequence_classification", files)
    for name in saved.glob("*token*"):
        name.unlink()  # transformers 5 writes others than those of the time
    (saved / "vocab.txt").write_text(VOCABULARY)
    (saved / "requirements.txt").write_text("transformers<5\n")
    (saved / "model-config.yaml").write_text(CONFIG)
    command = [str(BIN / "archive-model"), "--model-name", "old", "--version", "1.0"]
    command += ["--handler", str(SERVICES / "encode_plus.py"), "--export-path", str(server.store)]
    command += ["--serialized-file", str(saved / "model.safetensors")]
    command += ["--extra-files", f"{saved / 'config.json'},{saved / 'vocab.txt'}"]
    command += ["--config-file", str(saved / "model-config.yaml")]
    command += ["--requirements-file", str(saved / "requirements.txt"), "--no-check"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return server.store / "old.mar"


@pytest.mark.timeout(600)
def test_a_handler_of_transformers_4_runs_beside_transformers_5(
    server: Running, tmp_path: Path
) -> None:
    import transformers

    path = pack(server, tmp_path / "model")
    server.properties = "install_py_dep_per_model=true\ndefault_startup_timeout=300\n"
    server.models = None
    server.start()
    registered = server.manage("POST", f"/models?url={path.name}&initial_workers=1", timeout_s=500)
    if "package index cannot be reached" in registered.text:
        pytest.skip(f"the package index cannot be reached: {registered.message[:200]}")
    assert 200 == registered.status, registered.text

    answer = server.predict("old", "the film was good").json
    assert answer["label"] in (0, 1)
    assert ("4", "5") == (answer["version"][0], transformers.__version__[0])
