"""``optimum_model: true``: a pipeline whose model is a program of ONNX Runtime, made at first load.

The program is kept in the user's cache, under the hash of the model's files and of the versions of
what made it, and compared with the eager model before it is kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import modeling_outputs

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.user_cache import user_cache
from marserve.handlers.export.onnx import FILE_NAME, write
from marserve.handlers.export.parity import TOLERANCES, compare
from marserve.handlers.export.subject import Subject
from marserve.handlers.pretrained import context_length, load_config
from marserve.handlers.runners import load_runner
from marserve.handlers.runners.base import INPUT_NAMES, Runner, RunnerOptions
from marserve.handlers.runners.eager import EagerRunner

_log = logging.getLogger(__name__)
_COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class _Form:
    """What a task's model is as a program."""

    auto_class: str
    result: str
    outputs: tuple[str, ...] = ("logits",)
    inputs: tuple[str, ...] = INPUT_NAMES
    per_token: bool = False
    spare: tuple[str, ...] = ()


_SEQUENCES = _Form("AutoModelForSequenceClassification", "SequenceClassifierOutput")
_FORMS = {
    "text-classification": _SEQUENCES,
    "sentiment-analysis": _SEQUENCES,
    "zero-shot-classification": _SEQUENCES,
    "token-classification": _Form(
        "AutoModelForTokenClassification", "TokenClassifierOutput", per_token=True
    ),
    "question-answering": _Form(
        "AutoModelForQuestionAnswering",
        "QuestionAnsweringModelOutput",
        ("start_logits", "end_logits"),
        per_token=True,
    ),
    "fill-mask": _Form("AutoModelForMaskedLM", "MaskedLMOutput", per_token=True),
    "feature-extraction": _Form(
        "AutoModel", "BaseModelOutput", ("last_hidden_state",), per_token=True, spare=("pooler.",)
    ),
    "image-classification": _Form(
        "AutoModelForImageClassification", "ImageClassifierOutput", inputs=("pixel_values",)
    ),
}
_FORMS["ner"] = _FORMS["token-classification"]


class GraphModel(nn.Module):
    """A program that pipelines take for a transformers model.

    Args:
        runner: Runs the program.
        form: What its outputs are called.
        config: The model's transformers config.
    """

    base_model_prefix = "model"

    def __init__(self, runner: Runner, form: _Form, config: Any) -> None:
        super().__init__()
        self.config = config
        self._runner = runner
        self._result = getattr(modeling_outputs, form.result)

    @property
    def device(self) -> torch.device:
        """Where the inputs must be."""
        return self._runner.device

    @property
    def dtype(self) -> torch.dtype:
        """Of its numbers."""
        return torch.float32

    def can_generate(self) -> bool:
        """It cannot."""
        return False

    def forward(self, **inputs: Any) -> Any:
        """Runs one padded batch."""
        return self._result(**self._runner(inputs))


def runs_as_graph(task: str) -> bool:
    """Whether a task's model can be one program; what writes text step by step cannot."""
    return task in _FORMS


def load_graph(task: str, directory: Path) -> GraphModel:
    """Returns the model of a folder as a program, made now if it was not made before.

    Raises:
        HandlerLoadError: If a package for it is missing, or it cannot be made.
    """
    form, config = _FORMS[task], load_config(directory)
    home = user_cache("onnx") / _key(directory, form)
    options = _options(form, directory, config)
    with _exclusive(home):
        if not (home / _COMPLETE).exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            _make(form, options, config, home)
            (home / _COMPLETE).touch()
    runner = load_runner("onnx", _options(form, home, config, FILE_NAME))
    runner.warm_up()
    names = getattr(config, "architectures", None) or [form.auto_class]
    kind = type(str(names[0]), (GraphModel,), {})  # pipelines look at the name of the class
    found: GraphModel = kind(runner, form, config).eval()
    return found


def _make(form: _Form, options: RunnerOptions, config: Any, home: Path) -> None:
    begin = time.monotonic()
    eager = load_runner("eager", options)
    if not isinstance(eager, EagerRunner):
        raise TypeError(f"expected an eager runner, got {type(eager).__name__}")
    names = tuple(name for name in form.inputs if name in eager.input_names)
    subject = Subject(eager, names, form.outputs, context_length(config))
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        for file in write(subject, Path(scratch)):
            shutil.move(file, home / file.name)
    program = load_runner("onnx", _options(form, home, config, FILE_NAME))
    parity = compare(eager, program, [subject.example()], form.per_token)
    if parity.relative > TOLERANCES["torch.float32"]:
        raise HandlerLoadError(f"optimum_model: the program differs from the model: {parity}")
    _log.warning(
        "made the ONNX program of %s in %.1f s: %s",
        options.directory.name,
        time.monotonic() - begin,
        parity,
    )


def _options(
    form: _Form, directory: Path, config: Any, weights_file: str | None = None
) -> RunnerOptions:
    return RunnerOptions(
        directory=directory,
        auto_class=form.auto_class,
        output_names=form.outputs,
        device=torch.device("cpu"),
        config=config,
        weights_file=weights_file,
        dtype="float32",
        per_token=form.per_token,
        input_names=form.inputs,
        spare_weights=form.spare,
    )


def _key(directory: Path, form: _Form) -> str:
    import onnxruntime

    files = sorted(path for path in directory.iterdir() if path.is_file())
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    made_by = (torch.__version__, transformers.__version__, onnxruntime.__version__)
    text = repr((str(directory.resolve()), stats, made_by, form))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@contextmanager
def _exclusive(home: Path) -> Iterator[None]:
    """One worker makes a program; the others wait for it."""
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(f"{home}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
