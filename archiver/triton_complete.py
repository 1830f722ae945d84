"""What a config.pbtxt leaves out, completed from the model's file where that says it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from marserve.archiver.errors import ArchiveError
from marserve.archiver.onnx_file import onnx_tensors
from marserve.archiver.signature import DATATYPES, TensorSpec
from marserve.archiver.triton_config import TritonConfig

DEFAULT_MAX_BATCH_SIZE = 4
"""Of a model that takes batches and has no configuration that says how large."""

WORDS = {word: f"TYPE_{word}" for word in DATATYPES} | {"BYTES": "TYPE_STRING"}
"""Datatypes of the protocol, and Triton's words for them."""


def completed_from_file(config: TritonConfig, path: Path | None, backend: str) -> TritonConfig:
    """Returns the configuration with the tensors that the model's file declares.

    Args:
        config: Whatever it says stands.
        path: The model's file, or None.
        backend: Which runs it; only ONNX files say what they take.

    Raises:
        ArchiveError: If the file cannot be read.
        ConfigError: If the configuration names an input or output that the file has not.
    """
    plain = {**config.plain, "backend": config.plain["backend"] or backend}
    if backend != "onnxruntime" or path is None or path.suffix != ".onnx":
        return replace(config, plain=plain)
    inputs, outputs = onnx_tensors(path)
    if not inputs or not outputs:
        raise ArchiveError(f"{path.name}: has no inputs or no outputs")
    batches = all(spec.shape and spec.shape[0] == -1 for spec in (*inputs, *outputs))
    declared = bool(plain.get("input")) and bool(plain.get("output"))
    if batches and not plain["max_batch_size"] and not declared:
        plain["max_batch_size"] = DEFAULT_MAX_BATCH_SIZE
        if not {"dynamic_batching", "sequence_batching"} & plain.keys():
            plain["dynamic_batching"] = {}
    completed = replace(config, plain=plain)
    for key, specs in (("input", inputs), ("output", outputs)):
        if plain.get(key):
            _check_names(completed, key, specs)
        else:
            plain[key] = [_described(spec, key, bool(plain["max_batch_size"])) for spec in specs]
    return completed


def _check_names(config: TritonConfig, key: str, specs: list[TensorSpec]) -> None:
    known = [spec.name for spec in specs]
    for number, each in enumerate(config.plain[key]):
        if each["name"] not in known:
            config.refuse(
                f"{key}[{number}].name",
                f"the model has no {key} {each['name']!r}",
                f"it has: {', '.join(known)}",
            )


def _described(spec: TensorSpec, key: str, batched: bool) -> dict[str, Any]:
    dims = list(spec.shape[1:] if batched else spec.shape)
    described: dict[str, Any] = {"name": spec.name, "data_type": WORDS[spec.datatype]}
    if dims:
        return {**described, "dims": dims}
    # Without a dimension of its own: Triton writes one, and takes it away again.
    return {**described, "dims": [1], "reshape": {"shape": []}}
