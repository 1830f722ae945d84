"""The tensors that a config.pbtxt declares, as clients see them: with the batch dimension."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marserve.archiver.signature import Signature, TensorSpec
from marserve.archiver.triton_complete import WORDS
from marserve.archiver.triton_config import TritonConfig

_DATATYPES = {word: datatype for datatype, word in WORDS.items()}
_MOST_LABELS = 1 << 20


def signature(config: TritonConfig, home: Path) -> Signature | None:
    """Returns what requests are checked against; None where no tensor is declared.

    Args:
        config: Completed.
        home: The model's folder, where files of labels are.

    Raises:
        ConfigError: If a tensor has no name, no datatype or impossible dimensions, or its file of
            labels is not there.
    """
    most: int = config.plain["max_batch_size"]
    if most < 0:
        config.refuse("max_batch_size", f"expected 0 or more, got {most}")
    inputs = _specs(config, "input", home)
    outputs = _specs(config, "output", home)
    return Signature(inputs, outputs, rows_max=most) if inputs or outputs else None


def _specs(config: TritonConfig, key: str, home: Path) -> tuple[TensorSpec, ...]:
    specs = []
    for number, each in enumerate(config.plain.get(key, [])):
        place = f"{key}[{number}]"
        if not each.get("name"):
            config.refuse(f"{place}.name", "expected a name")
        if each.get("data_type") not in _DATATYPES:
            config.refuse(f"{place}.data_type", f"expected one of {', '.join(_DATATYPES)}")
        dims = _dims(config, place, each)
        specs.append(
            TensorSpec(
                name=each["name"],
                datatype=_DATATYPES[each["data_type"]],
                shape=(-1, *dims) if config.plain["max_batch_size"] else dims,
                optional=bool(each.get("optional")),
                labels=_labels(config, place, home, each.get("label_filename", "")),
            )
        )
    if twice := {s.name for s in specs if sum(o.name == s.name for o in specs) > 1}:
        config.refuse(key, f"{min(twice)!r} is there more than once")
    return tuple(specs)


def _dims(config: TritonConfig, place: str, tensor: dict[str, Any]) -> tuple[int, ...]:
    dims = tensor.get("dims", [])
    if not dims:
        config.refuse(f"{place}.dims", "expected at least one dimension")
    for given in (dims, tensor.get("reshape", {}).get("shape", [])):
        if wrong := [size for size in given if size == 0 or size < -1]:
            config.refuse(f"{place}.dims", f"expected numbers above 0, or -1; got {wrong[0]}")
    return tuple(dims)


def _labels(config: TritonConfig, place: str, home: Path, name: str) -> tuple[str, ...]:
    if not name:
        return ()
    path = home / name
    if Path(name).is_absolute() or ".." in Path(name).parts or not path.is_file():
        config.refuse(f"{place}.label_filename", f"the model's folder has no file {name!r}")
    lines = path.read_text(errors="replace").splitlines()[:_MOST_LABELS]
    return tuple(line.strip() for line in lines)
