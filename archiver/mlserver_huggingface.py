"""MLServer's Hugging Face runtime: what ``parameters.extra`` of its model-settings.json may say."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from marserve.archiver.mlserver_settings import MODEL_FILE, ModelSettings
from marserve.archiver.schema import Natural, Positive, Reading
from marserve.archiver.signature import Signature, TensorSpec

HUGGING_FACE = "mlserver_huggingface.HuggingFaceRuntime"
VARIABLES = "MLSERVER_MODEL_HUGGINGFACE_"
"""Environment variables that begin so stand for keys that are absent."""

_WHERE = "$.parameters.extra"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Options(Struct, frozen=True, kw_only=True):
    """The keys of ``parameters.extra``.

    Args:
        task: Of a transformers pipeline, such as ``text-generation``.
        task_suffix: Appended to the task ``translation``, such as ``_en_to_de``.
        pretrained_model: Folder of the model, relative to the file's, or the name of an installed
            package that holds one; else ``parameters.uri``, else the file's own folder.
        pretrained_tokenizer: The same for the tokenizer; else that of the model.
        framework: ``pt``, the only one.
        optimum_model: Whether it runs in ONNX Runtime.
        device: An index, ``cpu`` or ``cuda:1``; -1 for the CPU.
        batch_size: Rows that go through the model together; else ``max_batch_size``.
        model_kwargs: For the loading of the model.
    """

    task: str | None = None
    task_suffix: str | None = None
    pretrained_model: str | None = None
    pretrained_tokenizer: str | None = None
    framework: str | None = None
    optimum_model: bool | None = None
    device: int | str | None = None
    batch_size: Positive | None = None
    model_kwargs: dict[str, Any] | None = None
    inter_op_threads: Natural | None = None
    intra_op_threads: Natural | None = None


def check_options(settings: ModelSettings, warnings: list[str]) -> dict[str, Any]:
    """Returns ``parameters.extra``, completed from the environment.

    Args:
        settings: The whole file.
        warnings: Receives the keys that mean nothing.

    Raises:
        ConfigError: If a value is wrong, or there is no task; names file and key.
    """
    given = {**from_environment(os.environ), **(settings.parameters.extra or {})}
    reading = Reading(MODEL_FILE, warnings)
    options = Options(**reading.fields(Options, given, _WHERE))
    known = Options.__struct_fields__
    reading.suggest(given, Options, _WHERE)
    for key in given:
        if key not in known and not any(f"{_WHERE}.{key}:" in text for text in warnings):
            reading.warn(f"{_WHERE}.{key}", "is no key of this runtime")
    if not options.task:
        reading.problem(f"{_WHERE}.task", 'a task such as "text-generation"', options.task)
    if options.framework not in (None, "pt"):
        reading.problem(f"{_WHERE}.framework", '"pt", for PyTorch', options.framework)
    return given


def from_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    """Returns the options that environment variables stand for, one a key."""
    found: dict[str, Any] = {}
    for key in Options.__struct_fields__:
        text = variables.get(VARIABLES + key.upper())
        if text is None:
            continue
        if key == "optimum_model" and text.lower() in _TRUE + _FALSE:
            found[key] = text.lower() in _TRUE
        else:
            found[key] = _plain(text)
    return found


def signature_of_task(task: str) -> Signature:
    """Returns the tensors of the commonest requests of a task; others are taken as well."""

    def texts(name: str) -> TensorSpec:
        return TensorSpec(name, "BYTES", (-1,), True, {"content_type": "str"})

    names: tuple[str, ...] = ("args",)
    if task == "question-answering":
        names = ("question", "context")
    elif task in ("zero-shot-classification", "zero-shot-image-classification"):
        names = ("args", "candidate_labels")
    output = TensorSpec("output", "BYTES", (-1, 1), False, {"content_type": "hg_jsonlist"})
    return Signature(tuple(map(texts, names)), (output,), strict=False)


def _plain(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (int, dict)) else text
