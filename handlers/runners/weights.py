"""Weights of an archive into a transformers model: mapped from safetensors, never unpickled."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import safetensors
from torch import nn

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.runners.base import RunnerOptions

STANDARD_NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""What transformers calls weights: files or indexes of files, the preferred first."""

_LOAD_ERRORS = (
    OSError,
    ValueError,
    RuntimeError,
    ImportError,
    pickle.UnpicklingError,
    safetensors.SafetensorError,
)


def load_module(options: RunnerOptions) -> nn.Module:
    """Loads a model for inference, without gradients for its weights.

    At the checkpoint's own dtype the weights stay mapped from the file, so that all workers of a
    machine share them.

    Raises:
        HandlerLoadError: If the weights are absent, damaged, or lack a part of the model.
    """
    import transformers

    auto = getattr(transformers, options.auto_class)
    keywords: dict[str, Any] = {"dtype": options.dtype, "config": options.config}
    if options.attn_implementation:
        keywords["attn_implementation"] = options.attn_implementation
    with _quiet(), _standard_names(options) as (directory, safe):
        try:
            module, info = auto.from_pretrained(
                directory,
                local_files_only=True,
                weights_only=True,
                use_safetensors=safe,
                output_loading_info=True,
                **keywords,
            )
        except _LOAD_ERRORS as error:
            raise HandlerLoadError(
                f"{options.auto_class}: the model cannot be loaded from the archive: {error}"
            ) from error
    _check_complete(options, info)
    module.requires_grad_(False)
    loaded: nn.Module = module.eval().to(options.device)
    return loaded


@contextmanager
def _standard_names(options: RunnerOptions) -> Iterator[tuple[Path, bool]]:
    """A directory where the weights have a name that transformers looks for, and if it is safe.

    An archive may call its serialized file what it likes; a link gives it the usual name meanwhile.
    """
    directory, own_name = options.directory, options.weights_file
    standard = next((name for name in STANDARD_NAMES if (directory / name).is_file()), None)
    if standard is not None:
        yield directory, "safetensors" in standard
        return
    if own_name is None or not (directory / own_name).is_file():
        raise HandlerLoadError(
            f"the archive has no weights: expected {STANDARD_NAMES[0]} (or {STANDARD_NAMES[2]});"
            " pack them with --serialized-file or --extra-files"
        )
    safe = own_name.endswith(".safetensors")
    with TemporaryDirectory(prefix="marserve-weights-") as linked:
        for name, target in (("config.json", "config.json"), (_link_name(safe), own_name)):
            Path(linked, name).symlink_to((directory / target).resolve())
        yield Path(linked), safe


def _link_name(safe: bool) -> str:
    return STANDARD_NAMES[0] if safe else STANDARD_NAMES[2]


def _check_complete(options: RunnerOptions, info: dict[str, Any]) -> None:
    """Weights made up at random would answer requests with noise."""
    spare = options.spare_weights
    missing = sorted(str(key) for key in info["missing_keys"] if not str(key).startswith(spare))
    if missing or info["mismatched_keys"]:
        keys = missing or [str(key) for key in info["mismatched_keys"]]
        kinds = ", ".join(getattr(options.config, "architectures", None) or ["unknown"])
        raise HandlerLoadError(
            f"the weights do not fit {options.auto_class}: {', '.join(keys[:5])}"
            f" {'missing' if missing else 'of another shape'} ({len(keys)} in all); config.json"
            f" says they are those of {kinds}: choose the mode that fits, or train the head first"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar over the few milliseconds of mapping: it would fill the model's log."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
