"""Archives of tiny models, brought into another mode as `archive-model export` does it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import TEXTS, context
from tests.media_models import KINDS, save

from marserve.archiver.manifest import MANIFEST_PATH, Manifest
from marserve.archiver.package import PackageSpec, package
from marserve.archiver.pretrained import pretrained_spec
from marserve.handlers.export.archive import ExportSpec, export_archive
from marserve.handlers.transformer import TransformerHandler

# A task that has no kind of model of its own, with one that it can be done with.
_MODELS = {"feature_extraction": "sequence_classification"}
GENERATION = {"do_sample": False, "max_new_tokens": 6}
Exported = Callable[..., Path]


def pack(directory: Path, task: str, target: Path, **settings: Any) -> Path:
    """Packs a saved model as a directory below `target`; `settings` go to the section `handler`."""
    target.mkdir(parents=True, exist_ok=True)
    spec = PackageSpec(
        model_name="tiny", handler="", export_path=target, archive_format="no-archive"
    )
    with pretrained_spec(spec, directory, task) as complete:
        archive = package(complete)
    config = archive / "model-config.yaml"
    content = yaml.safe_load(config.read_text())
    content["handler"].update(settings)
    if task == "text_generation":
        content["handler"]["generation"] = GENERATION
    config.write_text(yaml.safe_dump(content))
    return archive


def serve(archive: Path, **settings: Any) -> TransformerHandler:
    """Loads an unpacked archive as a worker does; `settings` replace those under `handler`."""
    manifest = Manifest.from_json((archive / MANIFEST_PATH).read_bytes())
    config = yaml.safe_load((archive / "model-config.yaml").read_text())
    config["handler"].update(settings)
    handler = TransformerHandler()
    file = str(manifest.model.serialized_file)
    handler.initialize(context(archive, config, serializedFile=file))
    return handler


def outputs(handler: TransformerHandler, task: str, rows: int) -> dict[str, torch.Tensor]:
    """What a handler's runner says of some texts, without what it says of padding."""
    items = [handler.task.parse(TEXTS[task][at % 2]) for at in range(rows)]
    inputs = handler.task.encode(items).inputs
    names = [name for name in handler.runner.input_names if name in inputs]
    found = handler.runner({name: inputs[name] for name in names})
    kept = inputs["attention_mask"].bool() if handler.task.per_token else slice(None)
    return {name: values[kept] for name, values in found.items()}


@pytest.fixture(scope="session")
def exported(tiny_model: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Returns an unpacked archive in a mode: (kind, task, source, quantization=None) -> Path.

    Exporting takes seconds, so each is made once for all processes of a test run.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "exported"
    shared.mkdir(exist_ok=True)

    def get(kind: str, task: str, source: Any = "pretrained", quantization: Any = None) -> Path:
        root = shared / f"{kind}-{task}-{source}-{quantization}"
        archive = root / "tiny"
        weights = archive if source == "pretrained" else get(kind, task)
        with open(root.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if archive.exists():
                return archive
            if source == "pretrained":
                return pack(_saved(tiny_model, kind, task, root), task, root)
            spec = ExportSpec(
                archive=weights,
                target=archive,
                source=source,
                quantization=quantization,
                drafts=shared / f"{kind}-{task}-drafts",
            )
            export_archive(spec)
        return archive

    return get


def _saved(tiny_model: TinyModel, kind: str, task: str, root: Path) -> Path:
    if kind in KINDS:
        return save(kind, root / "saved")
    return tiny_model(kind, _MODELS.get(task, task))
