"""From an archive with weights to one with a program made of them, compared with each other."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marserve.archiver.errors import ArchiveError, HandlerLoadError
from marserve.archiver.execution import SUFFIXES, find_execution
from marserve.archiver.handler_options import SaveMode
from marserve.archiver.manifest import TRANSFORMER_HANDLER
from marserve.archiver.model_config import parse_model_config
from marserve.archiver.repack import Changes, repack
from marserve.archiver.unpack import Archive, open_directory, unpack
from marserve.handlers.context import Context
from marserve.handlers.export import FLOAT32_ONLY, write_program
from marserve.handlers.export.parity import TOLERANCES, Parity, compare
from marserve.handlers.export.samples import own_samples, read_samples, sample_batches
from marserve.handlers.export.subject import Subject
from marserve.handlers.metrics import HandlerMetrics
from marserve.handlers.pretrained import context_length
from marserve.handlers.runners import load_runner
from marserve.handlers.runners.base import Inputs
from marserve.handlers.runners.eager import EagerRunner
from marserve.handlers.runners.weights import STANDARD_NAMES
from marserve.handlers.transformer import TransformerHandler

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json")
_OF_ANOTHER_MODE = ("save_mode", "quantization", "dtype", "model_parallel")
_OF_THE_WHOLE = ("pt2", "parallelType", "parallelLevel", "torchrun")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSpec:
    """What to export, and where to.

    Args:
        archive: A ``.mar``, ``.tar.gz`` or directory of the transformer handler, with weights.
        target: The new archive.
        source: What the model is to be run from.
        quantization: As in ``handler.quantization``, or None.
        keep_weights: Whether the weights stay, which explanations need.
        samples: Request bodies to compare on; None for the archive's, or some of our own.
        drafts: Directory for what the precisions of a program share, so that the next export of
            the same archive finds it; None for nowhere.
        tolerance: Largest relative difference; None for what fits the kind of numbers.
        archive_format: One of ``archiver.spec.FORMATS``; None to tell by the target's name.
        force: Whether an existing target is replaced.
    """

    archive: Path
    target: Path
    source: SaveMode
    quantization: str | None = None
    keep_weights: bool = True
    samples: Path | None = None
    drafts: Path | None = None
    tolerance: float | None = None
    archive_format: str | None = None
    force: bool = False


def export_archive(spec: ExportSpec) -> Parity:
    """Writes an archive that runs the same model from another source.

    Returns:
        How near its program comes to the eager model; it is within the tolerance.

    Raises:
        ArchiveError: If the archive is none of the transformer handler, or the target exists.
        ConfigError: If the source and its quantization do not go together.
        HandlerLoadError: If the model cannot be loaded or exported, or its program is too far off.
    """
    if spec.target.exists() and not spec.force:
        raise ArchiveError(f"{spec.target} already exists: give --force/-f to replace it")
    with opened(spec.archive) as archive, tempfile.TemporaryDirectory() as scratch:
        samples = spec.samples or own_samples(archive.directory)
        bodies = None if samples is None else read_samples(samples)
        config = exported_config(archive.config.raw, spec.source, spec.quantization)
        find_execution(parse_model_config(config), f"model{SUFFIXES[spec.source][0]}")
        eager = load_eager(archive, "float32" if spec.source in FLOAT32_ONLY else None)
        batches = sample_batches(eager, bodies)
        subject = _subject(eager, batches, spec)
        files = write_program(spec.source, subject, Path(scratch))
        parity = _compare(eager, subject, spec, files[0], batches)
        changes = Changes(
            config=config,
            serialized_file=files[0].name,
            files={**{file.name: file for file in files}, **_kept_weights(archive, spec)},
            removed=_removed(archive, spec),
        )
        repack(archive, changes, spec.target, archive_format=spec.archive_format, force=spec.force)
    return parity


def exported_config(
    raw: dict[str, Any], source: SaveMode, quantization: str | None = None
) -> dict[str, Any]:
    """Returns a model-config.yaml for another source; what another mode alone has is left out.

    Args:
        raw: The whole file as plain values.
        source: What the model is to be run from.
        quantization: As in ``handler.quantization``, or None.
    """
    options = dict(raw.get("handler") or {})
    kept = {key: value for key, value in options.items() if key not in _OF_ANOTHER_MODE}
    chosen = {"save_mode": source, **({"quantization": quantization} if quantization else {})}
    rest = {key: value for key, value in raw.items() if key not in (*_OF_THE_WHOLE, "handler")}
    return {**rest, "handler": {**kept, **chosen}}


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Yields an archive whose files are ready for use.

    Raises:
        ArchiveError: If it cannot be read, or is not one of the transformer handler.
    """
    with contextlib.ExitStack() as stack:
        if path.is_dir():
            archive = open_directory(path)
        else:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="marserve-"))
            archive = unpack(path, Path(scratch))
        if archive.manifest.model.handler != TRANSFORMER_HANDLER:
            raise ArchiveError(
                f"{path.name}: has the handler {archive.manifest.model.handler!r}; only archives of"
                f" {TRANSFORMER_HANDLER} can be brought into another mode"
            )
        yield archive


def load_eager(archive: Archive, dtype: str | None = None) -> TransformerHandler:
    """Loads an archive's weights eagerly, whatever mode its configuration asks for.

    Args:
        archive: Unpacked.
        dtype: As in ``handler.dtype``; None for the configuration's own.

    Raises:
        HandlerLoadError: If it has none, or they do not fit.
    """
    config = exported_config(archive.config.raw, "pretrained")
    own = archive.config.handler.dtype
    config["handler"] = {
        **config["handler"],
        "dtype": dtype or own or "auto",
        "BetterTransformer": False,
    }
    manifest = archive.manifest.as_dict()
    manifest["model"] = {**manifest["model"], "serializedFile": _weights_file(archive)}
    handler = TransformerHandler()
    handler.initialize(
        Context(
            archive.manifest.model.model_name,
            str(archive.directory),
            manifest,
            batch_size=1,
            gpu_id=None,
            metrics=HandlerMetrics(archive.manifest.model.model_name),
            model_yaml_config=config,
        )
    )
    return handler


def _subject(eager: TransformerHandler, batches: list[Inputs], spec: ExportSpec) -> Subject:
    runner = eager.runner
    if not isinstance(runner, EagerRunner):
        raise TypeError(f"expected an eager runner, got {type(runner).__name__}")
    config: Any = runner.module.config
    if getattr(config, "is_encoder_decoder", False):
        raise HandlerLoadError(
            f"a model with encoder and decoder, such as this {config.model_type}, is two programs,"
            " which cannot be exported yet; it runs with save_mode: pretrained"
        )
    return Subject(
        runner=runner,
        input_names=tuple(name for name in runner.input_names if name in batches[0]),
        output_names=eager.task.output_names,
        longest=context_length(config),
        quantization=spec.quantization,
        samples=tuple(batches),
        drafts=spec.drafts,
    )


def _compare(
    eager: TransformerHandler,
    subject: Subject,
    spec: ExportSpec,
    file: Path,
    batches: list[Inputs],
) -> Parity:
    options = replace(
        eager._runner_options,
        directory=file.parent,
        weights_file=file.name,
        quantization=spec.quantization,
    )
    program = load_runner(spec.source, options)
    program.warm_up()
    parity = compare(subject.runner, program, batches, eager.task.per_token)
    numbers = "int8" if spec.quantization else str(subject.runner.module.dtype)
    tolerance = TOLERANCES[numbers] if spec.tolerance is None else spec.tolerance
    if parity.relative > tolerance:
        raise HandlerLoadError(
            f"save_mode: {spec.source}: the program does not answer as the eager model does:"
            f" {parity}; the relative difference may be {tolerance:g} (--tolerance)"
        )
    return parity


def _weights_file(archive: Archive) -> str:
    """The serialized file, if it holds weights; otherwise they have one of their usual names."""
    serialized = archive.manifest.model.serialized_file or ""
    if serialized.endswith(_WEIGHTS):
        return serialized
    for name in STANDARD_NAMES:
        if (archive.directory / name).is_file():
            return name
    raise HandlerLoadError(
        f"the archive has no weights, only {serialized or 'no serialized file'}; take the archive"
        " that this one was made from"
    )


def _removed(archive: Archive, spec: ExportSpec) -> frozenset[str]:
    """The old program goes, and so do the weights unless they are wanted."""
    program = archive.manifest.model.serialized_file or ""
    tensors = program.removesuffix(".xml") + ".bin" if program.endswith(".xml") else ""
    files = [path.name for path in archive.directory.iterdir() if path.is_file()]
    weights = {name for name in files if name.endswith(_WEIGHTS)} - {tensors}
    if not spec.keep_weights:
        return frozenset({program, tensors, *weights})
    return frozenset({program, tensors} - weights | {*_renamed(archive)})


def _kept_weights(archive: Archive, spec: ExportSpec) -> dict[str, Path]:
    """Without being the serialized file, weights are found by their usual names alone."""
    if not spec.keep_weights:
        return {}
    return {new: archive.directory / old for old, new in _renamed(archive).items()}


def _renamed(archive: Archive) -> dict[str, str]:
    name = _weights_file(archive)
    if name in STANDARD_NAMES:
        return {}
    return {name: STANDARD_NAMES[0 if name.endswith(".safetensors") else 2]}
