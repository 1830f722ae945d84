"""What can be known of a model without running it: checked when packing, and by ``verify``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marserve.archiver.entry_points import entry_point_problem, model_file_problem
from marserve.archiver.errors import ArchiveError, ConfigError
from marserve.archiver.execution import Execution, find_execution
from marserve.archiver.handler_options import HandlerOptions, SaveMode
from marserve.archiver.manifest import TRANSFORMER_HANDLER, Manifest
from marserve.archiver.model_config import ModelConfig, load_model_config
from marserve.archiver.parallel import arrange, division_problem
from marserve.archiver.pretrained import LABELLED_TASKS, TASKS, saved_task
from marserve.archiver.pt2 import pt2_problem
from marserve.archiver.safetensors import header_problem
from marserve.archiver.spec import BUILTIN_HANDLERS

_MAX_JSON_BYTES = 64 << 20
_PROCESSED = ("image_classification", "automatic_speech_recognition")
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_DEFAULT_NUM_LABELS = 2  # what transformers assumes where config.json is silent
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".safetensors.index.json", ".bin.index.json")
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
_TOKENIZER_SUFFIXES = (".model", ".bpe.model")


@dataclass(slots=True)
class Report:
    """What was found; each text names the file and what would be right."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def raise_problems(self) -> None:
        """Raises one error with a line for each problem.

        Raises:
            ArchiveError: If there is any problem.
        """
        if self.problems:
            raise ArchiveError("\n".join(self.problems))


def check_files(files: Mapping[str, Path], manifest: Manifest) -> Report:
    """Checks the contents of an archive.

    Args:
        files: The file for each name in the archive.
        manifest: What the archive says of itself.
    """
    report = Report()
    config = _check_config(files, manifest, report)
    report.problems += [
        f"{key}: {name} is not in the archive"
        for key, name in manifest.model.files().items()
        if name not in files
    ]
    handler = config.use_handler or manifest.model.handler
    _check_code(files, manifest, handler, report)
    _check_requirements(files, manifest, report)
    _check_weights(files, report)
    if handler == TRANSFORMER_HANDLER:
        _check_transformer(files, manifest, config, report)
    _check_labels(files, config.handler, report)
    return report


def _check_config(files: Mapping[str, Path], manifest: Manifest, report: Report) -> ModelConfig:
    path = files.get(manifest.model.config_file or "")
    if path is None:
        return ModelConfig()
    try:
        strict = manifest.model.handler == TRANSFORMER_HANDLER
        config = load_model_config(path, strict_handler=strict)
    except ConfigError as error:
        report.problems.append(str(error))
        return ModelConfig()
    report.warnings += config.warnings
    return config


def _check_code(
    files: Mapping[str, Path], manifest: Manifest, handler: str, report: Report
) -> None:
    model_file = manifest.model.model_file
    if manifest.runtime == "LSP":
        report.warnings.append("runtime LSP: C++ handlers can be packed, but marserve runs none")
        return
    if handler not in BUILTIN_HANDLERS:
        module, _, entry = handler.partition(":")
        name = module.removesuffix(".py") + ".py"
        if name not in files:
            report.problems.append(f"handler {handler}: {name} is not in the archive")
        elif problem := entry_point_problem(files[name], entry):
            report.problems.append(f"{name}: {problem}")
    elif model_file and model_file in files and (problem := model_file_problem(files[model_file])):
        report.problems.append(f"{model_file}: {problem}")


def _check_requirements(files: Mapping[str, Path], manifest: Manifest, report: Report) -> None:
    name = manifest.model.requirements_file
    if name is None or name not in files:
        return
    try:
        text = files[name].read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        report.problems.append(f"{name}: cannot be read as UTF-8 text: {error}")
        return
    if "\0" in text:
        report.problems.append(f"{name}: expected a list of Python packages, found binary data")


def _check_weights(files: Mapping[str, Path], report: Report) -> None:
    for name, path in files.items():
        if name.endswith(".safetensors"):
            if problem := header_problem(path):
                report.problems.append(f"{name}: {problem}")
        elif name.endswith((".safetensors.index.json", ".bin.index.json")):
            index = _read_object(name, path, report)
            shards = (index or {}).get("weight_map")
            if index is not None and not isinstance(shards, dict):
                report.problems.append(f"{name}: expected the key 'weight_map' with a mapping")
            elif shards:
                folder = name.rpartition("/")[0]
                wanted = {f"{folder}/{shard}".lstrip("/") for shard in set(shards.values())}
                report.problems += [
                    f"{name}: names {shard}, which is not in the archive: add it to --extra-files"
                    for shard in sorted(wanted - files.keys())
                ]


def _check_transformer(
    files: Mapping[str, Path], manifest: Manifest, config: ModelConfig, report: Report
) -> None:
    task = config.handler.mode or _saved_task(files, report)
    if task is None and not report.problems:
        report.problems.append(
            f"{TRANSFORMER_HANDLER}: expected a model-config.yaml (--config-file) with "
            f"$.handler.mode, one of {', '.join(TASKS)}"
        )
    if "config.json" not in files:
        report.problems.append(
            f"{TRANSFORMER_HANDLER}: expected the model's config.json among --extra-files"
        )
    _check_execution(files, manifest, config, task, report)
    if task in _PROCESSED and not any(name in files for name in _PROCESSORS):
        report.problems.append(
            f"{TRANSFORMER_HANDLER}: expected {_PROCESSORS[0]} among --extra-files: it says what"
            f" {task} does to its inputs"
        )
    if task == "image_classification":
        return
    if not any(name in _TOKENIZERS or name.endswith(_TOKENIZER_SUFFIXES) for name in files):
        report.problems.append(
            f"{TRANSFORMER_HANDLER}: expected the tokenizer's files among --extra-files: "
            f"tokenizer_config.json and one of {', '.join(_TOKENIZERS)}"
        )


def _saved_task(files: Mapping[str, Path], report: Report) -> str | None:
    saved = (_object(files, "config.json", report) or {}).get("architectures")
    return saved_task(saved if isinstance(saved, list) else ())


def _check_execution(
    files: Mapping[str, Path],
    manifest: Manifest,
    config: ModelConfig,
    task: str | None,
    report: Report,
) -> None:
    name, model = manifest.model.serialized_file, _object(files, "config.json", Report()) or {}
    try:
        mode = find_execution(config, name, task, manifest.model.config_file or "model-config.yaml")
    except ConfigError as error:
        report.problems += [str(error), *_two_programs(model, config.handler.save_mode)]
        return
    report.problems += [*_two_programs(model, mode.source), *_indivisible(model, mode)]
    if mode.source == "pretrained" and not any(file.endswith(_WEIGHTS) for file in files):
        report.problems.append(
            f"{TRANSFORMER_HANDLER}: expected weights, such as --serialized-file model.safetensors"
        )
    if name is not None and name in files:
        report.problems += _program_problems(files, name, mode.source)


def _two_programs(model: Mapping[str, Any], source: str | None) -> list[str]:
    if source in (None, "pretrained") or not model.get("is_encoder_decoder"):
        return []
    kind = model.get("model_type")
    return [
        f"config.json: a model with encoder and decoder, such as this {kind}, is two programs;"
        f" expected save_mode: pretrained, got {source}"
    ]


def _indivisible(model: Mapping[str, Any], mode: Execution) -> list[str]:
    if mode.parallel is None or mode.ranks < 2 or not model:
        return []
    problem = division_problem(model, *arrange(mode.parallel, mode.ranks))
    return [f"config.json: {problem}"] if problem else []


def _program_problems(files: Mapping[str, Path], name: str, source: SaveMode) -> list[str]:
    if source in ("aot_inductor", "exported"):
        problem = pt2_problem(files[name], source)
        return [f"{name}: {problem}"] if problem else []
    tensors = name.removesuffix(".xml") + ".bin"
    if source == "openvino" and tensors not in files:
        return [f"{name}: expected {tensors} beside it: add it to --extra-files"]
    return []


def _check_labels(files: Mapping[str, Path], options: HandlerOptions, report: Report) -> None:
    names = _object(files, "index_to_name.json", report)
    if options.mode is not None and options.mode not in LABELLED_TASKS:
        return
    expected, source = options.num_labels, "$.handler.num_labels of the config file"
    if options.mode is not None and (model := _object(files, "config.json", report)) is not None:
        of_model = _num_labels(model)
        if expected not in (None, of_model):
            report.problems.append(
                f"model-config.yaml: $.handler.num_labels: expected {of_model}, "
                f"as config.json has, got {expected}"
            )
        expected, source = of_model, "num_labels of config.json"
    if names is None or expected is None or "object_type_names" in names:
        return
    if not isinstance(names.get("label_list", ""), str):
        report.problems.append(
            "index_to_name.json: $.label_list: expected one text such as [O, B-PER, I-PER]"
        )
        return
    labels = _labels(names)
    if len(labels) != expected:
        report.problems.append(
            f"index_to_name.json: expected {expected} labels ({source}), got {len(labels)}"
        )
    elif "label_list" not in names and (missing := {str(i) for i in range(expected)} - set(labels)):
        report.problems.append(
            f'index_to_name.json: expected the keys "0" to "{expected - 1}", '
            f"missing: {', '.join(sorted(missing))}"
        )


def _labels(names: dict[str, Any]) -> list[str]:
    """Returns the keys, or the labels of token classification: one text such as ``[O, B-PER]``."""
    if "label_list" in names:
        return [label.strip() for label in names["label_list"].strip("[] ").split(",")]
    return list(names)


def _num_labels(model: dict[str, Any]) -> int:
    for key in ("id2label", "label2id"):
        if isinstance(model.get(key), dict) and model[key]:
            return len(model[key])
    number = model.get("num_labels")
    return number if isinstance(number, int) else _DEFAULT_NUM_LABELS


def _object(files: Mapping[str, Path], name: str, report: Report) -> dict[str, Any] | None:
    return _read_object(name, files[name], report) if name in files else None


def _read_object(name: str, path: Path, report: Report) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise ValueError(f"larger than {_MAX_JSON_BYTES} bytes")
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise TypeError("expected an object")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        report.problems.append(f"{name}: cannot be read as a JSON object: {error}")
        return None
    return content
