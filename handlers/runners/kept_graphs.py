"""Compiled graphs that the next start loads as they are, without tracing the model again.

PyTorch's own cache spares the C++ compiler; most of a second start is then spent on tracing the
model anew. What ``torch.compile`` has traced can be written to a file since PyTorch 2.13
(``aot_compile``, which its documentation calls experimental): a file of graphs and guards, which
takes the weights from the module that it is loaded for. Where that does not work, nothing is lost:
the model is compiled as ever.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from marserve.handlers.runners.base import Inputs, Outputs

SUFFIX = ".graphs"


class KeptGraphs:
    """A module's graphs, one for each kind of batch.

    Args:
        module: Takes inputs by name, and gives outputs that have names.
        output_names: The outputs that are wanted.
    """

    def __init__(self, module: nn.Module, output_names: Sequence[str]) -> None:
        torch._dynamo.config.enable_aot_compile = True
        self._core = _Core(module, tuple(output_names)).eval()
        settings: Any = {"guard_filter_fn": _keep_shapes}
        self._compiled: Any = torch.compile(self._core, fullgraph=True, options=settings)

    def restore(self, path: Path) -> None:
        """Takes graphs from a file.

        Raises:
            OSError: If it cannot be read.
            Exception: Whatever PyTorch raises where it does not suit.
        """
        with torch.inference_mode():  # what is looked at in each call is noted anew, as it is then
            self._compiled._load_aot_compiled_module(path.read_bytes())
        self._ready()

    def compile(self, batches: Sequence[Inputs]) -> None:
        """Makes a graph for each of some batches and all that are like it.

        Args:
            batches: A row alone stands for one row, several for any number but one; tokens for any
                number.

        Raises:
            Exception: Whatever PyTorch raises where it cannot make one.
        """
        from torch._dynamo.aot_compile import ModelInput

        none: Any = ()
        inputs = [ModelInput(none, _freed(batch), [torch.inference_mode()]) for batch in batches]
        self._compiled._aot_compile(inputs)
        self._ready()

    def save(self, path: Path) -> None:
        """Writes the graphs to a file: at once, or not at all.

        Raises:
            OSError: If that is not possible.
            Exception: Whatever PyTorch raises where they cannot be written.
        """
        data = self._compiled._save_aot_compiled_module()
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, part = tempfile.mkstemp(prefix=".graphs-", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise

    def graph(self, inputs: Inputs) -> Callable[..., Outputs] | None:
        """Returns what runs a batch; None if it is like none that was compiled for."""
        for graph in self._compiled.forward.compiled_results:
            if graph.guard_check(self._core, **inputs):
                return partial(graph, self._core)
        return None

    def _ready(self) -> None:
        for graph in self._compiled.forward.compiled_results:
            graph.disable_guard_check()  # ``graph`` has looked


class _Core(nn.Module):
    """The module with plain inputs and outputs, so that no wrapper of its library is traced."""

    def __init__(self, module: nn.Module, output_names: tuple[str, ...]) -> None:
        super().__init__()
        self.module = module
        self.output_names = output_names

    def forward(self, **inputs: Tensor) -> Mapping[str, Tensor]:
        outputs = self.module(**inputs)
        return {name: outputs[name] for name in self.output_names}


def key_of(module: nn.Module, *more: object) -> str:
    """Returns what differs where graphs of one module would be wrong for another.

    Args:
        module: Its weights' names, kinds and shapes count, not their values.
        more: What else counts.
    """
    import transformers

    named = [*module.named_parameters(), *module.named_buffers()]
    shapes = [(name, str(value.dtype), tuple(value.shape)) for name, value in named]
    classes = [type(each) for each in module.modules()]
    kinds = [f"{each.__module__}.{each.__qualname__}" for each in classes]
    code = sorted({_source(each.__module__) for each in classes})
    versions = torch.__version__, transformers.__version__, torch.get_num_threads()
    processor = torch.backends.cpu.get_cpu_capability(), _processor()
    config: Any = getattr(module, "config", None)
    settings = getattr(config, "to_json_string", str)(), getattr(config, "_attn_implementation", "")
    text = repr((kinds, code, shapes, versions, processor, settings, more))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _source(module: str) -> str:
    """A digest of the code of a module, which may be the archive's own."""
    try:
        path = Path(str(getattr(sys.modules.get(module), "__file__", None) or ""))
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return module


def _processor() -> str:
    """What this processor can do, as Linux tells it: code is compiled for all of that."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _keep_shapes(guards: Sequence[Any]) -> list[bool]:
    """Which conditions of a graph are looked at in each call: shapes and types of the inputs.

    All else, the weights, the code and PyTorch's settings, is the same for as long as a worker has
    its model.
    """
    return [
        guard.guard_type == "SHAPE_ENV"
        or (guard.guard_type == "TENSOR_MATCH" and not isinstance(guard.value, nn.Parameter))
        for guard in guards
    ]


def _freed(batch: Inputs) -> Inputs:
    """Marks what may have another size in other batches."""
    for values in batch.values():
        if values.dim() == 2:
            torch._dynamo.maybe_mark_dynamic(values, 1)
        if values.shape[0] > 1:
            torch._dynamo.maybe_mark_dynamic(values, 0)
    return batch
