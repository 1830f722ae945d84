"""Sample inputs that an exported program is compared on: given ones, else a few sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.runners.base import Inputs, probe
from marserve.handlers.transformer import TransformerHandler

_SENTENCES = (
    "A short one.",
    "The film was far better than what I had been told to expect of it.",
    "Nobody knows when the train to Vienna leaves, and the 14 people on the platform, most of"
    " whom have waited since the morning, have stopped asking; Anna Berger sits on her case.",
)
_QUESTION = "Who waits for the train?"
_NAMES = ("samples.txt", "samples.json", "sample_input.json", "sample_text.txt")
_BATCH = 8  # long texts in large batches would take gigabytes


def own_samples(directory: Path) -> Path | None:
    """Returns the file of an unpacked archive that has samples of the model's inputs, if any."""
    paths = (directory / name for name in _NAMES)
    return next((path for path in paths if path.is_file()), None)


def read_samples(path: Path) -> list[Any]:
    """Reads request bodies: a JSON array, one JSON object, or one text a line.

    Raises:
        HandlerLoadError: If there are none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise HandlerLoadError(f"--samples: {path}: cannot be read: {error}") from error
    if path.suffix == ".json":
        try:
            value = json.loads(text)
        except ValueError as error:
            raise HandlerLoadError(f"--samples: {path}: is no JSON: {error}") from error
        bodies = value if isinstance(value, list) else [value]
    else:
        bodies = [line for line in text.splitlines() if line.strip()]
    if not bodies:
        raise HandlerLoadError(f"--samples: {path}: is empty; expected a text a line, or JSON")
    return bodies


def sample_batches(handler: TransformerHandler, bodies: list[Any] | None) -> list[Inputs]:
    """Returns padded inputs of several shapes: batches of a few rows, and the first and last alone.

    Args:
        handler: Knows the task and the tokenizer.
        bodies: Request bodies; None for sentences of our own, or noise where a task has no text.

    Raises:
        HandlerLoadError: If the task cannot read a body.
    """
    if bodies is None:
        return _own_batches(handler)
    try:
        items = [handler.task.parse(handler.task.read({"body": body})) for body in bodies]
    except RequestError as error:
        raise HandlerLoadError(f"--samples: {error.message}") from error
    groups = [items[at : at + _BATCH] for at in range(0, len(items), _BATCH)]
    groups += [items[:1], items[-1:]] if len(items) > 1 else []
    return [dict(handler.task.encode(group).inputs) for group in groups]


def _own_batches(handler: TransformerHandler) -> list[Inputs]:
    pairs = [{"question": _QUESTION, "context": text} for text in _SENTENCES]
    for bodies in (list(_SENTENCES), pairs):
        try:
            return sample_batches(handler, bodies)
        except HandlerLoadError:
            continue
    generator = torch.Generator().manual_seed(0)
    batches = [probe(rows, tokens, handler.runner) for rows, tokens in ((1, 8), (3, 24))]
    for inputs in batches:
        for name, values in inputs.items():
            if values.is_floating_point():
                inputs[name] = torch.randn(values.shape, generator=generator).to(values)
    return batches
