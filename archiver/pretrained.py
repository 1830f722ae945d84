"""A saved Hugging Face directory packed in one step: which files, and what configuration."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from marserve.archiver.errors import ArchiveError
from marserve.archiver.manifest import TRANSFORMER_HANDLER
from marserve.archiver.spec import PackageSpec

TASKS: dict[str, tuple[str, ...]] = {
    "sequence_classification": ("ForSequenceClassification",),
    "token_classification": ("ForTokenClassification",),
    "question_answering": ("ForQuestionAnswering",),
    "text_generation": ("ForCausalLM", "LMHeadModel"),
    "fill_mask": ("ForMaskedLM",),
    "zero_shot_classification": ("ForSequenceClassification",),
    "image_classification": ("ForImageClassification",),
    "automatic_speech_recognition": ("ForCTC", "WhisperForConditionalGeneration"),
    "summarization": ("ForConditionalGeneration",),
    "translation": ("ForConditionalGeneration", "MTModel"),
    "feature_extraction": ("Model",),
    "sentence_similarity": ("Model",),
}
"""The tasks, and how the names of the models that were saved for each of them end."""
HEADLESS_TASKS = ("feature_extraction", "sentence_similarity")
"""Tasks that leave the head of a model alone, so that any will do."""
LABELLED_TASKS = ("sequence_classification", "token_classification", "image_classification")
"""Tasks whose answers are names of classes."""

_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "index_to_name.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "bpe.codes",
    "chat_template.jinja",
    "chat_template.json",
)
_LABEL_FILE = "index_to_name.json"
_CONFIG_FILE = "model-config.yaml"
_MAX_LENGTH = 512
_POSITION_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
# Position 0 of these is one beyond the padding index, so two places of the table are never used.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "longformer", "mpnet", "data2vec-text")
# The attribute below which a model keeps its encoder, where that is not the model type itself.
_EMBEDDING_NAMES = {
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "deberta-v2": "deberta",
    "gpt2": "transformer",
    "gpt_neo": "transformer",
    "gptj": "transformer",
    "bloom": "transformer",
    "xlnet": "transformer",
    "gpt_neox": "gpt_neox",
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "phi", "opt"), "model"),
}
_HUB_NAME = re.compile(r"[\w\-.]+(/[\w\-.]+)?")


@contextlib.contextmanager
def pretrained_spec(spec: PackageSpec, directory: Path, task: str) -> Iterator[PackageSpec]:
    """Completes a spec with the files of a directory that ``save_pretrained`` wrote.

    The spec is valid while the context lasts: generated files live in a temporary directory.

    Args:
        spec: What the user gave; its config file and extra files are kept.
        directory: Holds config.json, weights and the tokenizer.
        task: One of ``TASKS``.

    Raises:
        ArchiveError: If a file is missing, or the model was saved for another task.
    """
    if task not in TASKS:
        raise ArchiveError(f"--task: expected one of {', '.join(TASKS)}, got {task!r}")
    if not directory.is_dir():
        raise ArchiveError(f"--from-pretrained: directory not found: {directory}")
    model = _read_object(directory / "config.json")
    if spec.check:
        _check_task(directory, model, task)
    weights = _weights(directory)
    extras = [directory / name for name in _COMPANIONS if (directory / name).is_file()]
    with tempfile.TemporaryDirectory(prefix="marserve-") as scratch:
        if not any(Path(given).name == _LABEL_FILE for given in _given_extras(spec)):
            extras += _labels(directory, model, task, Path(scratch))
        config_file = spec.config_file or _config(directory, model, task, Path(scratch))
        yield dataclasses.replace(
            spec,
            handler=spec.handler or TRANSFORMER_HANDLER,
            serialized_file=weights[0],
            extra_files=(*_given_extras(spec), *weights[1:], *extras),
            config_file=config_file,
        )


def _given_extras(spec: PackageSpec) -> tuple[str | Path, ...]:
    given = spec.extra_files
    return (
        tuple(filter(None, map(str.strip, given.split(",")))) if isinstance(given, str) else given
    )


def _weights(directory: Path) -> list[Path]:
    """Returns the weights: one file, or an index and its shards."""
    for name in _WEIGHTS:
        path = directory / name
        if path.is_file():
            if not name.endswith(".json"):
                return [path]
            shards = _read_object(path).get("weight_map")
            if not isinstance(shards, dict) or not all(map(_is_file_name, shards.values())):
                raise ArchiveError(f"{path}: expected a 'weight_map' from tensors to file names")
            return [path, *(directory / shard for shard in sorted(set(shards.values())))]
    raise ArchiveError(f"{directory} has no weights: expected one of {', '.join(_WEIGHTS)}")


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and name == Path(name).name


def _check_task(directory: Path, model: dict[str, Any], task: str) -> None:
    """A head that was not saved would be made up at random, and nobody would notice."""
    saved = [name for name in model.get("architectures") or () if isinstance(name, str)]
    if task in HEADLESS_TASKS:
        return
    if saved and not any(name.endswith(TASKS[task]) for name in saved):
        fitting = saved_task(saved)
        hint = f"--task {fitting}" if fitting else f"a model saved as ...{TASKS[task][0]}"
        raise ArchiveError(
            f"{directory / 'config.json'}: $.architectures: {', '.join(saved)} has no head for "
            f"{task}; expected {hint}"
        )


def saved_task(architectures: Iterable[str]) -> str | None:
    """Returns the first task that a model was saved for, None if its names do not tell.

    Args:
        architectures: As in config.json.
    """
    pairs = ((name, task) for name in architectures for task in TASKS)
    return next((task for name, task in pairs if str(name).endswith(TASKS[task])), None)


def _labels(directory: Path, model: dict[str, Any], task: str, scratch: Path) -> list[Path]:
    """Returns the label file made from id2label, if the task has labels and there is none yet."""
    names = model.get("id2label")
    if task not in LABELLED_TASKS:
        return []
    if (directory / _LABEL_FILE).is_file() or not isinstance(names, dict) or not names:
        return []
    try:
        ordered = {str(index): str(names[index]) for index in sorted(names, key=int)}
    except ValueError:
        raise ArchiveError(
            f"{directory / 'config.json'}: $.id2label: expected whole numbers"
        ) from None
    content: dict[str, str] = ordered
    # One text holds all names, so names with a comma have to go the other way.
    if task == "token_classification" and not set(",[]") & set("".join(ordered.values())):
        content = {"label_list": f"[{', '.join(ordered.values())}]"}
    path = scratch / _LABEL_FILE
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return [path]


def folder_settings(directory: Path) -> tuple[str, dict[str, Any]]:
    """Returns what a saved directory says for itself, where it is served as it is.

    Returns:
        The file name of its weights, or of their index; and a model-config.yaml as plain values.

    Raises:
        ArchiveError: If its weights are missing, or it was not saved for a task that is known.
    """
    model = _read_object(directory / "config.json")
    saved = [str(name) for name in model.get("architectures") or ()]
    task = saved_task(saved)
    if task is None:
        what = ", ".join(saved) or "nothing"
        raise ArchiveError(
            f"{directory.name}/config.json: $.architectures: {what} tells no task; pack it with"
            f" archive-model --from-pretrained and --task, one of {', '.join(TASKS)}"
        )
    return _weights(directory)[0].name, _settings(directory, model, task)


def _config(directory: Path, model: dict[str, Any], task: str, scratch: Path) -> Path:
    path = scratch / _CONFIG_FILE
    settings = _settings(directory, model, task)
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8")
    return path


def _settings(directory: Path, model: dict[str, Any], task: str) -> dict[str, Any]:
    tokenizer_path = directory / "tokenizer_config.json"
    tokenizer = _read_object(tokenizer_path) if tokenizer_path.is_file() else {}
    kind = str(model.get("model_type", ""))
    handler = {
        "model_name": _model_name(model),
        "mode": task,
        "do_lower_case": bool(tokenizer.get("do_lower_case", False)),
        "num_labels": _num_labels(model, task),
        "save_mode": "pretrained",
        "max_length": _max_length(model, tokenizer, kind),
        "captum_explanation": True,
        "embedding_name": _EMBEDDING_NAMES.get(kind, kind) or None,
        "BetterTransformer": False,
        "model_parallel": False,
    }
    return {"handler": {key: value for key, value in handler.items() if value is not None}}


def _model_name(model: dict[str, Any]) -> str:
    """Returns the hub's name; a path on somebody's machine is nobody else's business."""
    name = model.get("_name_or_path")
    if isinstance(name, str) and _HUB_NAME.fullmatch(name) and not name.startswith("."):
        return name
    return str(model.get("model_type", "transformer"))


def _num_labels(model: dict[str, Any], task: str) -> int | None:
    if task not in LABELLED_TASKS:
        return None
    return len(model.get("id2label") or ()) or model.get("num_labels") or 2


def _max_length(model: dict[str, Any], tokenizer: dict[str, Any], kind: str) -> int:
    positions = _counts(model, _POSITION_KEYS)[:1]
    if kind in _OFFSET_POSITIONS:
        positions = [count - 2 for count in positions]
    # Where transformers does not know a tokenizer's limit, it writes 10**30.
    return min([_MAX_LENGTH, *positions, *_counts(tokenizer, ("model_max_length",))])


def _counts(values: dict[str, Any], keys: tuple[str, ...]) -> list[int]:
    found = (values.get(key) for key in keys)
    return [value for value in found if isinstance(value, int) and value > 0]


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArchiveError(f"--from-pretrained: file not found: {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArchiveError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise ArchiveError(f"{path}: expected an object, got {type(content).__name__}")
    return content
