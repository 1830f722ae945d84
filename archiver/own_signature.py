"""The tensors of our own archives: as model-config.yaml declares them, or as the task has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from marserve.archiver.errors import ConfigError
from marserve.archiver.manifest import TRANSFORMER_HANDLER, Manifest
from marserve.archiver.signature import DATATYPES, Signature, TensorSpec

if TYPE_CHECKING:
    from marserve.archiver.handler_options import HandlerOptions
    from marserve.archiver.model_config import DeclaredTensor, ModelConfig

_TEXT, _JSON = ("BYTES", (-1,)), ("BYTES", (-1,))
_VECTOR = ("FP32", (-1, -1))
_Tensors = dict[str, tuple[str, tuple[int, ...]]]
_GENERATION: _Tensors = {
    "max_new_tokens": ("INT64", (-1,)),
    "temperature": ("FP32", (-1,)),
    "top_k": ("INT64", (-1,)),
    "top_p": ("FP32", (-1,)),
    "do_sample": ("BOOL", (-1,)),
    "seed": ("INT64", (-1,)),
}
_TASKS: dict[str, tuple[_Tensors, _Tensors, _Tensors]] = {
    "sequence_classification": ({"text": _TEXT}, {}, {"output": _TEXT}),
    "token_classification": ({"text": _TEXT}, {}, {"output": _JSON}),
    "question_answering": ({"question": _TEXT, "context": _TEXT}, {}, {"output": _TEXT}),
    "text_generation": ({"text": _TEXT}, _GENERATION, {"output": _TEXT}),
    "fill_mask": ({"text": _TEXT}, {"top_k": ("INT64", (-1,))}, {"output": _JSON}),
    "zero_shot_classification": (
        {"text": _TEXT, "candidate_labels": _TEXT},
        {"multi_label": ("BOOL", (-1,)), "hypothesis_template": _TEXT},
        {"sequence": _TEXT, "labels": _JSON, "scores": _VECTOR},
    ),
    "image_classification": ({"image": _TEXT}, {}, {"output": _JSON}),
    "automatic_speech_recognition": ({"audio": _TEXT}, {}, {"text": _TEXT}),
    "summarization": ({"text": _TEXT}, _GENERATION, {"output": _TEXT}),
    "translation": ({"text": _TEXT}, _GENERATION, {"output": _TEXT}),
    "feature_extraction": ({"text": _TEXT}, {}, {"output": _VECTOR}),
}


def own_signature(root: Path, manifest: Manifest, config: ModelConfig) -> Signature | None:
    """Returns the tensors of an archive, as far as they are known without running it.

    Args:
        root: Where its files are.
        manifest: Names the handler.
        config: Its ``signature`` section wins; else the transformer handler's task tells, whose
            signature is lenient: a lone input may have any name.
    """
    declared = config.signature
    if declared is not None:
        return Signature(
            tuple(map(_spec, declared.inputs)),
            tuple(map(_spec, declared.outputs)),
            declared.max_rows,
            declared.strict is not False,
        )
    if (config.use_handler or manifest.model.handler) != TRANSFORMER_HANDLER:
        return None
    task = config.handler.mode or _saved_task(root)
    return None if task not in _TASKS else _of_task(task, config.handler)


def check_signature(config: ModelConfig, where: str) -> None:
    """Refuses a ``signature`` section that contradicts itself.

    Raises:
        ConfigError: If a datatype is unknown, a dimension impossible or a name there twice.
    """
    if config.signature is None:
        return
    for key in ("inputs", "outputs"):
        tensors: list[DeclaredTensor] = getattr(config.signature, key)
        for number, each in enumerate(tensors):
            place = f"$.signature.{key}[{number}]"
            if not each.name:
                raise ConfigError(where, f"{place}.name: missing; expected the tensor's name")
            if each.datatype not in DATATYPES:
                known = ", ".join(DATATYPES)
                text = f"{place}.datatype: {each.datatype!r:.40}; expected one of {known}"
                raise ConfigError(where, text)
            if any(size < -1 for size in each.shape):
                text = f"{place}.shape: {each.shape}; expected numbers, -1 for any size"
                raise ConfigError(where, text)
        names = [each.name for each in tensors]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(where, f"$.signature.{key}: {min(twice)!r} is there more than once")


def _spec(declared: DeclaredTensor) -> TensorSpec:
    return TensorSpec(
        declared.name,
        declared.datatype,
        tuple(declared.shape),
        bool(declared.optional),
        labels=tuple(declared.labels),
    )


def _of_task(task: str, options: HandlerOptions) -> Signature:
    needed, more, outputs = _TASKS[task]
    if task == "sequence_classification" and options.top_k is not None:
        outputs = {}  # named by the labels, as many as are asked for
    if task == "feature_extraction" and options.pooling == "none":
        outputs = {"output": _JSON}
    inputs = [TensorSpec(name, *kind) for name, kind in needed.items()]
    inputs += [TensorSpec(name, *kind, optional=True) for name, kind in more.items()]
    given = tuple(TensorSpec(name, *kind) for name, kind in outputs.items())
    return Signature(tuple(inputs), given, strict=False)


def _saved_task(root: Path) -> str:
    from marserve.archiver.pretrained import saved_task

    try:
        config = json.loads((root / "config.json").read_bytes())
        return saved_task(config.get("architectures") or ()) or ""
    except (OSError, ValueError, AttributeError):
        return ""
