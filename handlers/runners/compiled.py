"""Compiled PyTorch: ``torch.compile`` around the eager model, with any batch size and length.

One graph for a single row and one for several, of any length, are all that a model of whole texts
needs: both are compiled when the model loads, and no request waits. What was compiled is kept in a
directory, the graphs as well as their code, so that the next start has little to do.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.loading import compile_module
from marserve.handlers.runners.base import INPUT_NAMES, Outputs, RunnerOptions, probe
from marserve.handlers.runners.decoding import exercise
from marserve.handlers.runners.eager import EagerRunner, load_eager_module
from marserve.handlers.runners.kept_graphs import SUFFIX, KeptGraphs, key_of

_WARM_UP_SHAPES = ((1, 8), (1, 16), (3, 24))  # a batch of one is compiled for itself
_PLAIN = {"backend": "inductor"}
_GRAPHS = 32  # generation needs about ten; past the limit PyTorch would run eagerly, with a warning

_log = logging.getLogger(__name__)


class CompiledRunner(EagerRunner):
    """Runs the compiled form of a transformers model.

    Args:
        module: The eager model; explanations use it as it is.
        output_names: The outputs that the task reads.
        options: Arguments of ``torch.compile``; ``dynamic`` is true unless they say otherwise.
        decodes: Whether text is generated, by ``decoder``.
        known: Names of the inputs that the task has to offer.
        in_background: Whether ``warm_up`` returns at once; the model runs eagerly until it is
            compiled.
        cache: Where graphs are kept, or None.
    """

    def __init__(
        self,
        module: nn.Module,
        output_names: tuple[str, ...],
        options: dict[str, Any],
        decodes: bool = False,
        known: tuple[str, ...] = INPUT_NAMES,
        in_background: bool = False,
        cache: Path | None = None,
    ) -> None:
        self._compiled: Any = compile_module(module, {"dynamic": True, **options})
        forward = module if in_background else self._compiled
        super().__init__(module, output_names, forward, decodes, known)
        self._in_background = in_background
        can_keep = self.device.type == "cpu" and not decodes and options in ({}, _PLAIN)
        self._cache = cache if can_keep else None
        self._known = known
        self.compiling: threading.Thread | None = None

    def __call__(self, inputs: dict[str, Any]) -> Outputs:
        """Runs one padded batch."""
        outputs = super().__call__(inputs)
        if self.device.type != "cuda":
            return outputs
        # With CUDA graphs the next run overwrites the outputs of this one.
        return {name: value.clone() for name, value in outputs.items()}

    def warm_up(self) -> None:
        """Compiles before the first request, which would wait for it otherwise.

        Raises:
            HandlerLoadError: If the model cannot be compiled here.
        """
        if not self._in_background:
            self._compile()
            self._forward = self._compiled
            return
        threads = torch.get_num_threads()
        self.compiling = threading.Thread(
            target=self._compile_later, args=(threads,), name="compile", daemon=True
        )
        self.compiling.start()

    def _compile_later(self, threads: int) -> None:
        torch.set_num_threads(threads)  # a thread has its own number, which graphs depend on
        try:
            self._compile()
        except HandlerLoadError as error:
            _log.error("%s; it keeps running eagerly", error)
            return
        self._forward = self._compiled
        _log.warning("pt2.compile: the model is compiled now; until here it ran eagerly")

    def _compile(self) -> None:
        if self._cache is not None:
            self._keep(self._cache / f"{key_of(self._module, self._output_names)}{SUFFIX}")
        runner = EagerRunner(
            self._module, self._output_names, self._compiled, self._decodes, self._known
        )
        try:
            if self._decodes:
                exercise(runner.decoder, lambda rows, tokens: probe(rows, tokens, runner))
            else:
                for rows, tokens in _WARM_UP_SHAPES:
                    runner(probe(rows, tokens, runner))
        except Exception as error:  # compilers raise what they like
            raise HandlerLoadError(
                f"model-config.yaml: $.pt2.compile: the model cannot be compiled here:"
                f" {type(error).__name__}: {str(error)[:800]}; set pt2.compile.enable: false to run"
                " it eagerly"
            ) from error

    def _keep(self, path: Path) -> None:
        """Takes the graphs that an earlier start kept, or compiles some that can be kept."""
        graphs = self._restored(path) or self._kept(path)
        if graphs is not None:
            self._compiled = _Either(graphs, self._compiled)

    def _restored(self, path: Path) -> KeptGraphs | None:
        if not path.exists():
            return None
        try:
            graphs = KeptGraphs(self._module, self._output_names)
            graphs.restore(path)
            self._try(graphs)
        except Exception as error:  # of another machine, cut short: it is made anew
            _log.info("pt2.compile: %s is of no use: %s", path.name, type(error).__name__)
            return None
        return graphs

    def _kept(self, path: Path) -> KeptGraphs | None:
        try:
            graphs = KeptGraphs(self._module, self._output_names)
            graphs.compile([probe(*shape, self) for shape in _WARM_UP_SHAPES[1:]])
            self._try(graphs)
        except Exception as error:  # a model may be beyond it; compilers raise what they like
            _log.info("pt2.compile: no graphs to keep: %s: %s", type(error).__name__, error)
            return None
        try:
            graphs.save(path)
        except Exception as error:
            _log.warning("pt2.compile: the graphs are not kept for the next start: %s", error)
        return graphs

    def _try(self, graphs: KeptGraphs) -> None:
        """Runs what no request must be the first to run.

        Raises:
            ValueError: If there is no graph for a batch.
            Exception: Whatever the graph raises.
        """
        batches = [probe(*shape, self) for shape in _WARM_UP_SHAPES]
        with torch.inference_mode():
            for batch in batches:
                graph = graphs.graph(batch)
                if graph is None:
                    raise ValueError("no graph for a batch")
                graph(**batch)


class _Either:
    """Kept graphs, and the compiled module for batches that they are not for."""

    def __init__(self, graphs: KeptGraphs, module: Any) -> None:
        self._graphs = graphs
        self._module = module

    def __call__(self, **inputs: Any) -> Any:
        return (self._graphs.graph(inputs) or self._module)(**inputs)


def load(options: RunnerOptions) -> CompiledRunner:
    """Loads the archive's weights and compiles their model.

    Raises:
        HandlerLoadError: If they do not load or cannot be compiled.
    """
    cache = (options.directory / options.compile_cache).resolve() if options.compile_cache else None
    if cache is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _GRAPHS)
    return CompiledRunner(
        load_eager_module(options),
        options.output_names,
        options.compile_options,
        options.decodes,
        options.input_names,
        options.compile_in_background,
        cache,
    )
