"""A model's file served without an archive: TorchScript, a program of torch.export, ONNX."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from marserve.archiver.digest import hash_lines
from marserve.archiver.errors import ArchiveError
from marserve.archiver.manifest import DEFAULT_VERSION, Manifest, ManifestModel, check_model_name
from marserve.archiver.model_config import ModelConfig
from marserve.archiver.pt2 import pt2_problem
from marserve.archiver.unpack import Archive

HANDLER = "base_handler"
_PROGRAMS = (".pt", ".pt2", ".onnx")
_WEIGHTS = (".pth", ".bin", ".safetensors")
_SCRIPT = "/constants.pkl"
_REMEDY = (
    "holds weights alone, and the code that computes with them is missing: pack both with"
    " archive-model --model-file CODE.py --serialized-file {name} --handler base_handler, or write"
    " the model with torch.export.save (.pt2) or torch.jit.save (.pt), which hold the code as well"
)


def is_model_file(path: Path) -> bool:
    """Tells by its name whether a file is a model itself, or the weights of one."""
    return path.suffix in _PROGRAMS + _WEIGHTS


def open_model_file(path: Path, target_dir: Path) -> Archive:
    """Makes an archive of one file, with the base handler and the file's name as its own.

    Args:
        path: A program that PyTorch or ONNX Runtime can run without other files.
        target_dir: Must be absent; gets a link to the file, or a copy from another file system.

    Raises:
        ArchiveError: If the file holds no program, or its name is none for a model.
    """
    if problem := model_file_problem(path):
        raise ArchiveError(problem)
    check_model_name(path.stem, "name of the file")
    status = path.stat()
    target_dir.mkdir(mode=0o700, parents=True)
    try:
        os.link(path.resolve(), target_dir / path.name)
    except OSError:
        shutil.copyfile(path, target_dir / path.name)
    model = ManifestModel(
        model_name=path.stem,
        model_version=DEFAULT_VERSION,
        handler=HANDLER,
        serialized_file=path.name,
    )
    digest = hash_lines([f"{status.st_size} {status.st_mtime_ns} {path.name}"])
    return Archive(target_dir, Manifest(runtime="python", model=model), ModelConfig(), digest)


def model_file_problem(path: Path) -> str | None:
    """Returns why a file cannot be served, and what can be done; None if it can."""
    if path.suffix in _WEIGHTS or (path.suffix == ".pt" and not _is_script(path)):
        return _REMEDY.format(name=path.name)
    if path.suffix == ".pt2" and pt2_problem(path, "aot_inductor"):
        return pt2_problem(path, "exported")
    return None


def _is_script(path: Path) -> bool:
    """Whether PyTorch wrote a program into the file: only such a file has constants."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(_SCRIPT) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False
