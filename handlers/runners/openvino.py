"""OpenVINO: a graph of operators (``.xml``) and its weights (``.bin``), run on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.runners.base import Inputs, RunnerOptions
from marserve.handlers.runners.program import ProgramRunner, known_names, open_program

QUANTIZATION_KEY = ["marserve", "quantization"]
"""Where the file's runtime information says what its weights were brought to."""


def import_openvino() -> Any:
    """Returns the package ``openvino``.

    Importing it would report to its makers; without its package for that, it does not.

    Raises:
        HandlerLoadError: If it is not installed.
    """
    if "openvino" not in sys.modules:
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        import openvino
    except ImportError as error:
        raise HandlerLoadError(
            "save_mode: openvino needs OpenVINO, which is not installed: pip install"
            " marserve[openvino]"
        ) from error
    return openvino


class OpenVinoProgram:
    """Runs a file of OpenVINO.

    The engine's threads are those of PyTorch: the worker is told how many it may have, and follows
    by compiling the model anew.

    Args:
        path: The ``.xml`` file; its weights are beside it.
        options: Knows the names of the task's inputs.

    Raises:
        HandlerLoadError: If it is something else.
    """

    def __init__(self, path: Path, options: RunnerOptions) -> None:
        openvino = import_openvino()
        self._core = openvino.Core()
        self._numbers = "bf16" if options.dtype == "bfloat16" else "f32"
        try:
            self._model = self._core.read_model(path)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1][:300]
            raise HandlerLoadError(f"{path.name}: is no OpenVINO model ({reason})") from error
        self._compile()
        names = [value.get_any_name() for value in self._model.inputs]
        self.input_names = known_names(names, options)
        self._output_names = [
            next(iter(value.get_names()), str(at)) for at, value in enumerate(self._model.outputs)
        ]

    @property
    def quantization(self) -> str | None:
        """What the file says of its numbers; None if it says nothing."""
        if not self._model.has_rt_info(QUANTIZATION_KEY):
            return None
        return str(self._model.get_rt_info(QUANTIZATION_KEY).astype(str))

    def __call__(self, inputs: Inputs) -> dict[str, Tensor]:
        """Runs one padded batch."""
        if self._threads != torch.get_num_threads():
            self._compile()
        found = self._request.infer(
            {name: tensor.contiguous().numpy() for name, tensor in inputs.items()}
        )
        # The engine writes the next outputs over these.
        return {n: torch.from_numpy(found[at].copy()) for at, n in enumerate(self._output_names)}

    def _compile(self) -> None:
        self._threads = torch.get_num_threads()
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": self._threads,
            "ENABLE_CPU_PINNING": False,  # all workers would be pinned to the same cores
            "INFERENCE_PRECISION_HINT": self._numbers,  # unasked, it would be bf16 where there is
        }
        compiled = self._core.compile_model(self._model, "CPU", settings)
        found = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        if found != self._numbers:
            raise HandlerLoadError(
                "model-config.yaml: $.handler.dtype: bfloat16: this processor does not compute in"
                " it; expected float32"
            )
        self._request = compiled.create_infer_request()


def load(options: RunnerOptions) -> ProgramRunner:
    """Reads the archive's OpenVINO model.

    Raises:
        HandlerLoadError: If there is none, it is something else, or it has not the numbers that
            ``handler.quantization`` asks for.
    """
    return open_program("openvino", OpenVinoProgram, options)
