"""TorchServe's built-in handlers, named by an archive alone, served through real workers.

Neither torchvision nor torchtext is installed where this runs; nothing asks for them. Files that
hold a whole model need no archive: the base handler serves them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import shutil
import subprocess
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tests.e2e.running import BIN, Running, running
from tests.handlers.test_vision import BOXES, PIXELS

pytestmark = pytest.mark.timeout(400)
REGISTER_S = 150  # PyTorch takes its time on a busy machine
MODELS = {
    "image_classifier": """
import torch
class Colours(torch.nn.Module):
    def forward(self, images):
        return images.mean(dim=(2, 3)) * 10
""",
    "object_detector": BOXES,
    "image_segmenter": PIXELS,
    "text_classifier": """
import torch
class Bag(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(4, 2, mode="mean")
        self.out = torch.nn.Linear(2, 2, bias=False)
        self.embedding.weight.data = torch.tensor([[0.0, 0], [4, 0], [0, 4], [0, 0]])
        self.out.weight.data = torch.eye(2)
    def forward(self, text, offsets):
        return self.out(self.embedding(text, offsets))
""",
    "base_handler": """
import torch
class Doubler(torch.nn.Module):
    def forward(self, numbers):
        return numbers * 2
""",
}
ABSENT = {
    "pippy": ("base_pippy_handler", "BasePippyHandler", "torchpippy"),
    "deepspeed": ("base_deepspeed_handler", "BaseDeepSpeedHandler", "deepspeed"),
}


def pack(server: Running, name: str, handler: str, files: Path) -> None:
    command = [str(BIN / "archive-model"), "--model-name", name, "--version", "1.0", "--no-check"]
    command += ["--handler", handler, "--export-path", str(server.store)]
    extra = sorted(str(each) for each in files.iterdir() if each.name not in ("model.py", "h.py"))
    if (files / "model.py").exists():
        command += ["--model-file", str(files / "model.py")]
    if extra:
        command += ["--extra-files", ",".join(extra)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def write(files: Path, name: str) -> Path:
    files.mkdir()
    (files / "model.py").write_text(MODELS[name])
    labels = {"0": "first", "1": "second", "2": "third"}
    if name == "text_classifier":
        labels = {"0": "positive", "1": "negative"}
        words = OrderedDict((word, i) for i, word in enumerate(["<unk>", "good", "bad", "film"]))
        torch.save(words, files / "source_vocab.pt")
    if name != "base_handler":
        (files / "index_to_name.json").write_text(json.dumps(labels))
    return files


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("builtin")
    for made in running(root, models=None):
        for name in MODELS:
            pack(made, name, name, write(root / name, name))
        for name, (module, base, _) in ABSENT.items():
            folder = root / name
            folder.mkdir()
            (folder / "h.py").write_text(
                f"from ts.torch_handler.distributed.{module} import {base}\n\n\n"
                f"class Handler({base}):\n    pass\n"
            )
            pack(made, name, str(folder / "h.py"), folder)
        yield made.start()


def png() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (240, 230), (0, 255, 0)).save(stream, "png")
    return stream.getvalue()


@contextlib.contextmanager
def loaded(server: Running, file: str) -> Iterator[str]:
    """A model while it is registered: one after the other, as each imports PyTorch."""
    name = file.partition(".")[0]
    registered = server.manage(
        "POST", f"/models?url={file}&initial_workers=1", timeout_s=REGISTER_S
    )
    assert 200 == registered.status, registered.text
    yield name
    assert 200 == server.manage("DELETE", f"/models/{name}").status


def ask(server: Running, name: str, body: bytes | str, kind: str) -> Any:
    with loaded(server, f"{name}.mar"):
        answer = server.ask("POST", f"/predictions/{name}", body, {"Content-Type": kind})
    assert 200 == answer.status, answer.text
    return answer.json


def test_image_classifier(server: Running) -> None:
    labels = ask(server, "image_classifier", png(), "image/png")

    assert ["second", {"first", "second", "third"}] == [max(labels, key=labels.get), {*labels}]


def test_object_detector(server: Running) -> None:
    [found] = ask(server, "object_detector", png(), "image/png")

    assert {"second": [0.0, 0.0, 240.0, 230.0], "score": 0.75} == found


def test_image_segmenter(server: Running) -> None:
    rows = ask(server, "image_segmenter", png(), "image/png")

    assert (224, 224) == (len(rows), len(rows[0]))
    assert 1 == rows[0][0][0]


def test_text_classifier(server: Running) -> None:
    scores = ask(server, "text_classifier", "A <b>good</b> film!", "text/plain")

    assert scores["positive"] > 0.5 > scores["negative"]


def test_base_handler_takes_the_body_of_a_request(server: Running) -> None:
    assert [3.0, 4.0] == ask(server, "base_handler", "[1.5, 2]", "application/json")


def write_program(path: Path) -> None:
    layer = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(layer.weight, 2)
    torch.nn.init.constant_(layer.bias, 1)
    if path.name == "weights.pt":
        torch.save(layer.state_dict(), path)
    elif path.suffix == ".pt2":
        torch.export.save(torch.export.export(layer, (torch.zeros(1, 2),)), path)
    elif path.suffix == ".pt":
        traced: Any = torch.jit.trace(layer, torch.zeros(1, 2))
        traced.save(path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchScript
@pytest.mark.parametrize("name", ["traced.pt", "program.pt2"])
def test_a_file_that_holds_a_whole_model_is_served_as_it_is(server: Running, name: str) -> None:
    write_program(server.store / name)
    headers = {"Content-Type": "application/json"}
    with loaded(server, name) as model:
        answer = server.ask("POST", f"/predictions/{model}", "[1.0, 2.5]", headers)
        described = server.describe(model)

    assert 8.0 == pytest.approx(answer.json[0])
    assert ("1.0", name) == (described["modelVersion"], described["modelUrl"])


def test_a_file_of_weights_alone_says_what_is_missing(server: Running) -> None:
    write_program(server.store / "weights.pt")
    refused = server.manage("POST", "/models?url=weights.pt&initial_workers=1")

    assert 400 == refused.status
    assert refused.message.startswith("weights.pt: holds weights alone, and the code")
    assert "archive-model --model-file CODE.py --serialized-file weights.pt" in refused.message
    assert "torch.export.save (.pt2)" in refused.message
    checked = [str(BIN / "serve"), "check", str(server.store / "weights.pt")]
    done = subprocess.run(checked, check=False, capture_output=True, text=True, timeout=60)
    assert (1, True) == (done.returncode, "holds weights alone" in done.stdout)


def test_the_switch_of_the_profiler_leaves_a_trace_a_request(
    server: Running, tmp_path: Path
) -> None:
    name = f"profiled-{uuid.uuid4().hex}"
    traces = Path("/tmp/pytorch_profiler") / name  # where TorchServe's users look
    for made in running(tmp_path, models=None, environment={"ENABLE_TORCH_PROFILER": "true"}):
        made.store = server.store
        made.start()
        url = f"/models?url=base_handler.mar&model_name={name}&initial_workers=1"
        assert 200 == made.manage("POST", url, timeout_s=REGISTER_S).status
        try:
            answer = made.predict(name, "[1.5]", headers={"Content-Type": "application/json"})
            assert [3.0] == answer.json
            [trace] = traces.iterdir()
            assert "traceEvents" in json.loads(trace.read_text())
        finally:
            shutil.rmtree(traces, ignore_errors=True)


@pytest.mark.parametrize("name", list(ABSENT))
def test_a_base_that_needs_an_absent_package_says_so_when_it_is_used(
    server: Running, name: str
) -> None:
    package = ABSENT[name][2]
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed here")
    refused = server.manage(
        "POST", f"/models?url={name}.mar&initial_workers=1", timeout_s=REGISTER_S
    )

    assert 500 == refused.status
    assert f"needs the package {package}" in refused.message
