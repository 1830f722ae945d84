"""One mode of execution in a process of its own: loads it, then does what it is told, line by line.

``python -m marserve.handlers.optimize.trial JOB.json``; commands come as JSON lines on standard
input, one answer goes to standard output for each. A process of its own makes memory and load time
those of the mode alone.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from marserve.archiver.errors import MarserveError
from marserve.handlers.context import Context
from marserve.handlers.export.samples import read_samples
from marserve.handlers.metrics import HandlerMetrics
from marserve.handlers.optimize.inputs import ACCURACY, Cell, build_inputs
from marserve.handlers.runners.base import Inputs
from marserve.handlers.transformer import TransformerHandler

_WARM_UP_RUNS = 2
_FEWEST_RUNS, _MOST_RUNS = 2, 2000
_PRODUCTS = ((1024, 1024, 1024), (128, 768, 3072), (2048, 768, 3072))


class Trial:
    """A loaded mode.

    Args:
        job: ``directory``, ``config``, ``serialized_file``, ``manifest``, ``threads``.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        torch.set_num_threads(job["threads"])
        import transformers  # noqa: F401  # a worker has it imported before it loads

        began = time.perf_counter()
        self._handler = _load(job)
        self.load_s = time.perf_counter() - began
        self._runner = self._handler.runner
        self._batches: dict[str, Inputs] = {}

    def inputs(self, path: str, samples: str | None, cells: list[list[int]]) -> dict[str, Any]:
        """Writes what all modes are measured on; returns the rows of each cell by its name."""
        bodies = None if samples is None else read_samples(Path(samples))
        batches = build_inputs(self._handler, bodies, [Cell(*cell) for cell in cells])
        tensors = {
            f"{batch}|{name}": values.cpu().contiguous()
            for batch, inputs in batches.items()
            for name, values in inputs.items()
        }
        save_file(tensors, path)
        timed = {name: batch for name, batch in batches.items() if not name.startswith(ACCURACY)}
        rows = {name: len(next(iter(batch.values()))) for name, batch in timed.items()}
        compared = [batch for name, batch in batches.items() if name.startswith(ACCURACY)]
        return {"rows": rows, "compared": sum(len(next(iter(b.values()))) for b in compared)}

    def read(self, path: str) -> None:
        """Reads those inputs, as far as the mode takes them."""
        for key, values in load_file(path).items():
            batch, _, name = key.partition("|")
            if name in self._runner.input_names:
                self._batches.setdefault(batch, {})[name] = values.to(self._runner.device)

    def time(self, cell: str, seconds: float) -> list[float]:
        """Returns the milliseconds of runs of one cell, as many as there is time for."""
        inputs = self._batches[cell]
        for _ in range(_WARM_UP_RUNS):
            self._run(inputs)
        times_ms: list[float] = []
        ends = time.perf_counter() + seconds
        while len(times_ms) < _MOST_RUNS:
            began = time.perf_counter()
            if len(times_ms) >= _FEWEST_RUNS and began > ends:
                break
            self._run(inputs)
            times_ms.append(1000 * (time.perf_counter() - began))
        return times_ms

    def outputs(self, path: str) -> None:
        """Writes all values of the compared batches, and the place of the largest of each."""
        values: dict[str, list[Tensor]] = {}
        for batch, inputs in self._batches.items():
            if batch.startswith(ACCURACY):
                for name, output in self._run(inputs).items():
                    flat, top = self._flat(output.float().cpu(), inputs)
                    values.setdefault(f"values|{name}", []).append(flat)
                    values.setdefault(f"top|{name}", []).append(top)
        save_file({name: torch.cat(parts) for name, parts in values.items()}, path)

    def memory(self) -> float:
        """Returns the resident memory of this process in MB."""
        return float(psutil.Process().memory_info().rss / 1e6)

    def products(self, seconds: float) -> float:
        """Returns the best rate of float32 matrix products here, in 1e9 operations a second."""
        device, best = self._runner.device, 0.0
        for rows, inner, columns in _PRODUCTS:
            one = torch.randn(rows, inner, device=device)
            two = torch.randn(inner, columns, device=device)
            ends = time.perf_counter() + seconds / len(_PRODUCTS)
            while time.perf_counter() < ends:
                began = time.perf_counter()
                torch.mm(one, two)
                self._finish()
                rate = 2e-9 * rows * inner * columns / (time.perf_counter() - began)
                best = max(best, rate)
        return best

    def layer_products(self, cell: str, seconds: float) -> float | None:
        """Returns the rate of the products with the model's own matrices alone, in 1e9 a second.

        One matrix after the other, as the model needs them, so that each comes from memory anew:
        for few tokens that, and not arithmetic, is the limit. None without such matrices, or if
        some of the cell's tokens are padding.
        """
        weights, tokens = self._layer_weights(), self._tokens(cell)
        if not weights or not tokens:
            return None
        states = {w.shape[1]: torch.randn(tokens, w.shape[1]).to(w) for w in weights}
        times_s: list[float] = []
        ends = time.perf_counter() + seconds
        with torch.inference_mode():
            while len(times_s) < _FEWEST_RUNS or time.perf_counter() < ends:
                began = time.perf_counter()
                for weight in weights:
                    torch.mm(states[weight.shape[1]], weight.t())
                self._finish()
                times_s.append(time.perf_counter() - began)
        return 2e-9 * tokens * sum(w.numel() for w in weights) / statistics.median(times_s)

    def _layer_weights(self) -> list[Tensor]:
        """The matrices of the linear layers that are in a list of layers."""
        named = self._runner.module.named_modules() if self._runner.module else ()
        return [
            module.weight.detach()
            for name, module in named
            if isinstance(module, nn.Linear) and any(map(str.isdecimal, name.split(".")))
        ]

    def _tokens(self, cell: str) -> int:
        inputs = self._batches[cell]
        if "input_ids" not in inputs or not inputs.get("attention_mask", torch.ones(1)).all():
            return 0
        return inputs["input_ids"].numel()

    def _run(self, inputs: Inputs) -> dict[str, Tensor]:
        outputs = self._runner(inputs)
        self._finish()
        return outputs

    def _finish(self) -> None:
        if self._runner.device.type == "cuda":
            torch.cuda.synchronize(self._runner.device)

    def _flat(self, output: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Without padding; one answer a row, or a token where each has scores of its own."""
        if not self._handler.task.per_token:
            return output.flatten(), output.argmax(-1).flatten()
        mask = inputs["attention_mask"].bool().cpu()
        if output.dim() == mask.dim():
            masked = output.masked_fill(~mask, -torch.inf)
            return output[mask], masked.argmax(-1)
        return output[mask].flatten(), output[mask].argmax(-1)


def _load(job: dict[str, Any]) -> TransformerHandler:
    manifest, config = job["manifest"], job["config"]
    manifest["model"] = {**manifest["model"], "serializedFile": job["serialized_file"]}
    name = manifest["model"]["modelName"]
    on_gpu = torch.cuda.is_available() and config.get("deviceType") != "cpu"
    handler = TransformerHandler()
    handler.initialize(
        Context(
            name,
            job["directory"],
            manifest,
            batch_size=1,
            gpu_id=0 if on_gpu else None,
            metrics=HandlerMetrics(name),
            model_yaml_config=config,
        )
    )
    return handler


def main() -> None:
    """Serves commands until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries may print what they like
    warnings.simplefilter("ignore")

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")

    try:
        trial = Trial(json.loads(Path(sys.argv[1]).read_text()))
        answer({"value": trial.load_s})
        for line in sys.stdin:
            command = json.loads(line)
            answer({"value": getattr(trial, command.pop("do"))(**command)})
    except MarserveError as error:
        answer({"error": str(error)})
    except Exception as error:  # libraries raise what they like
        answer({"error": f"{type(error).__name__}: {str(error).strip()[:500]}"})


if __name__ == "__main__":
    main()
