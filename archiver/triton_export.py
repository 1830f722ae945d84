"""Models of Triton repositories written from archives: the handler hosted, or the ONNX file."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from marserve.archiver.errors import ArchiveError
from marserve.archiver.exporting import new_model_folder, opened_for_export
from marserve.archiver.onnx_file import onnx_tensors
from marserve.archiver.signature import TensorSpec
from marserve.archiver.triton_complete import DEFAULT_MAX_BATCH_SIZE, WORDS
from marserve.archiver.triton_config import FILE_NAME, render
from marserve.archiver.unpack import Archive

INPUT, OUTPUT = "data", "output"
"""Names of the tensors of a hosted handler: what a client would post, and what it would get."""

_HOST = '''"""Hosts the archive beside this file; marserve must be importable where Triton runs."""

import os

import numpy as np
import triton_python_backend_utils as pb_utils
from marserve.worker.hosting import HostedArchive

CODES = {404: "NOT_FOUND", 501: "UNSUPPORTED", 503: "UNAVAILABLE"}


class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.join(args["model_repository"], args["model_version"], "archive")
        gpu = args["model_instance_kind"] == "GPU"
        self.archive = HostedArchive(folder, int(args["model_instance_device_id"]) if gpu else None)

    def execute(self, requests):
        """All rows of all requests are one batch; an error of a row is one of its request."""
        counts, bodies = [], []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "data").as_numpy().ravel()
            counts.append(len(rows))
            bodies += [row if isinstance(row, bytes) else str(row).encode() for row in rows]
        answers = iter(self.archive.answer(bodies))
        return [self.response([next(answers) for _ in range(count)]) for count in counts]

    def response(self, answers):
        for answer in answers:
            if answer.error:
                known = "INVALID_ARG" if answer.status < 500 else "INTERNAL"
                code = getattr(pb_utils.TritonError, CODES.get(answer.status, known))
                error = pb_utils.TritonError(answer.error, code)
                return pb_utils.InferenceResponse(output_tensors=[], error=error)
        texts = np.empty((len(answers), 1), dtype=np.object_)
        texts[:, 0] = [answer.body for answer in answers]
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("output", texts)])
'''


def export_triton(path: Path, repository: Path, *, onnx: bool = False) -> Path:
    """Writes a model of a Triton repository.

    Args:
        path: An archive or its directory.
        repository: Where the model's folder goes.
        onnx: Whether the archive's ONNX file is served by itself, tensors in and tensors out,
            rather than its handler.

    Returns:
        The model's folder.

    Raises:
        ArchiveError: If the archive cannot be read, or written in this form, or the folder is
            there already.
    """
    with opened_for_export(path) as (archive, name), new_model_folder(repository, name) as made:
        version = made / str(_version(archive.manifest.model.model_version))
        version.mkdir()
        config = _write_onnx(archive, version) if onnx else _write_host(archive, version)
        text = "\n".join(render({"name": name, **config}))
        (made / FILE_NAME).write_text(f"# Written by serve export --triton\n{text}\n")
    return repository / name


def _version(text: str) -> int:
    """Triton's versions are whole numbers; ``2.1`` becomes 2."""
    first = re.match(r"\d+", text)
    return max(1, int(first.group())) if first else 1


def _write_host(archive: Archive, folder: Path) -> dict[str, Any]:
    shutil.copytree(archive.directory, folder / "archive")
    (folder / "model.py").write_text(_HOST)
    config = archive.config
    rows = config.batch_size or 1
    described: dict[str, Any] = {
        "backend": "python",
        "max_batch_size": rows,
        "input": [{"name": INPUT, "data_type": "TYPE_STRING", "dims": [1]}],
        "output": [{"name": OUTPUT, "data_type": "TYPE_STRING", "dims": [1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": config.min_workers or 1}],
    }
    if config.device_type != "cpu":
        described["instance_group"] = [{"count": config.min_workers or 1}]
    if rows > 1:
        delay_us = (config.max_batch_delay or 0) * 1000
        described["dynamic_batching"] = {"max_queue_delay_microseconds": delay_us}
    return described


def _write_onnx(archive: Archive, folder: Path) -> dict[str, Any]:
    named = archive.manifest.model.serialized_file or ""
    source = archive.directory / named
    if not named.endswith(".onnx") or not source.is_file():
        raise ArchiveError(
            f"{archive.manifest.model.model_name}: has no ONNX file; archive-model export --format"
            " onnx makes such an archive"
        )
    shutil.copyfile(source, folder / "model.onnx")
    for extra in archive.directory.glob(f"{named}*"):  # weights that are kept beside the file
        if extra.name != named and extra.is_file():
            shutil.copyfile(extra, folder / extra.name)
    inputs, outputs = onnx_tensors(source)
    batched = all(spec.shape[:1] == (-1,) for spec in (*inputs, *outputs))
    rows = max(DEFAULT_MAX_BATCH_SIZE, archive.config.batch_size or 1) if batched else 0
    described: dict[str, Any] = {
        "platform": "onnxruntime_onnx",
        "max_batch_size": rows,
        "input": [_tensor(spec, batched) for spec in inputs],
        "output": [_tensor(spec, batched) for spec in outputs],
    }
    if batched:
        described["dynamic_batching"] = {}
    return described


def _tensor(spec: TensorSpec, batched: bool) -> dict[str, Any]:
    dims = list(spec.shape[1:] if batched else spec.shape)
    found = {"name": spec.name, "data_type": WORDS[spec.datatype], "dims": dims or [1]}
    return found if dims else {**found, "reshape": {"shape": []}}
