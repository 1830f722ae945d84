"""Runners: how a model is executed, one module a mode, imported on use."""

from __future__ import annotations

from importlib import import_module

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.runners.base import Runner, RunnerOptions

RUNNERS = {
    "eager": "marserve.handlers.runners.eager",
    "compiled": "marserve.handlers.runners.compiled",
    "torchscript": "marserve.handlers.runners.torchscript",
    "onnx": "marserve.handlers.runners.onnx",
    "openvino": "marserve.handlers.runners.openvino",
    "aot_inductor": "marserve.handlers.runners.aot_inductor",
    "exported": "marserve.handlers.runners.exported",
    "parallel": "marserve.handlers.runners.parallel",
}
TRANSFORMS = {"unpadded": "marserve.handlers.runners.unpadded"}


def load_runner(mode: str, options: RunnerOptions) -> Runner:
    """Loads a model for a mode.

    Args:
        mode: A key of ``RUNNERS``.
        options: Which model, and how.

    Raises:
        HandlerLoadError: If the model cannot be loaded or cannot run in this mode.
    """
    if mode not in RUNNERS:
        raise HandlerLoadError(f"no mode {mode!r} of execution; there are: {', '.join(RUNNERS)}")
    runner: Runner = import_module(RUNNERS[mode]).load(options)
    for transform in options.transforms:
        runner = import_module(TRANSFORMS[transform]).apply(runner, options)
    return runner
